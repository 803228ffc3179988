"""Errors of an object store in one line with a cure, and without anything that could be a credential."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipelines.errors import BadUsage, LakeError, PipelineError

__all__ = ["refused", "translated"]

WRONG_KEY: Final = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "TokenRefreshRequired",
}
CHANGED: Final = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
KEYS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
LOCAL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


@contextmanager
def translated(where: str, bucket: str, doing: str) -> Iterator[None]:
    """Turn the errors of the block's requests into errors in own words: the texts of a store are not printed."""
    try:
        yield
    except PipelineError:
        raise
    except FileNotFoundError as error:
        raise BadUsage(f"{where}: no bucket {bucket!r}; create it, or correct --lake") from error
    except Exception as error:
        # Importing botocore takes time; it is imported by now.
        from botocore import exceptions as boto

        code = _code(error)
        if isinstance(error, OSError) and error.errno in LOCAL:
            raise LakeError(f"{doing} {where}: {error.strerror}; free space for the local copy") from error
        if refused(error):
            raise LakeError(
                f"another ingest changed this trace of {where}; nothing was committed, run it again"
            ) from error
        if code in WRONG_KEY:
            raise BadUsage(f"{where}: the store does not accept the key ({code}); set {KEYS}") from error
        if isinstance(error, PermissionError):
            raise BadUsage(f"{where}: {doing} is denied; use a key that may do this, set {KEYS}") from error
        if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.ProfileNotFound):
            raise BadUsage(f"{where}: no credentials; set {KEYS}") from error
        if isinstance(error, boto.HTTPClientError | boto.ConnectionError | ConnectionError | TimeoutError):
            raise BadUsage(f"{where}: the store does not answer; check the network and AWS_ENDPOINT_URL") from error
        if isinstance(error, ValueError | boto.BotoCoreError) and code is None:
            raise BadUsage(
                f"{where}: invalid settings of AWS ({type(error).__name__}); check AWS_* and the profile"
            ) from error
        if isinstance(error, OSError | boto.ClientError):
            raise LakeError(f"{doing} {where} failed ({code or type(error).__name__}); try again") from error
        raise


def refused(error: BaseException) -> bool:
    """Return whether the store refused a write because its condition does not hold."""
    return _code(error) in CHANGED


def _code(error: BaseException) -> str | None:
    """Return the code of the store's answer, None for an error without one; s3fs raises OSError from the answer."""
    for each in (error, error.__cause__, error.__context__):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code"))
    return None
