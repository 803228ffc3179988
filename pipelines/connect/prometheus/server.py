"""Ask a Prometheus server: instant queries over its HTTP API, with bounded retries, time and bytes.

The names of metrics are elsewhere (`dialects`).
"""

import math
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx2
import polars as pl
from pydantic_core import from_json

from pipelines.connect.http import FAULTS, TooSlow, address_of, content_of, open_client, reason_in, status_of
from pipelines.errors import BadUsage, ConnectError

__all__ = ["Server", "open_server"]

MOST_BYTES: Final = 256 * 2**20
"""Maximum size of an answer, unpacked; about a million series."""

TIMEOUT: Final = httpx2.Timeout(60.0, connect=5.0)
PAUSES_S: Final = (0.5, 2.0, 5.0)
"""Pauses between the attempts of one query."""

LONGEST_PAUSE_S: Final = 10.0
TRY_AGAIN: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_REMARK: Final = re.compile(r"\s*PromQL (info|warning)")


class _Broken(Exception):
    """Raised for a failure after which another attempt may succeed."""

    def __init__(self, reason: str, *, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(slots=True, kw_only=True)
class Server:
    """An open Prometheus server; `partial` counts answers that the server marked as incomplete.

    `address` is for messages, without user and password; `answer_s` is the longest time for a whole answer.
    """

    client: httpx2.Client
    address: str
    answer_s: float = 180.0
    sleep: Callable[[float], None] = time.sleep
    most_bytes: int = MOST_BYTES
    partial: int = 0

    def now(self) -> float:
        """Return the server's time in Unix seconds; its samples have times by the same clock."""
        with self._understood():
            return float(self._result("time()", {}, "scalar")[1])

    def vector(self, query: str, at_s: float, labels: Sequence[str]) -> pl.DataFrame:
        """Return the series of an instant query at a time: the named labels as texts ("" if absent), and `value`."""
        rows = self._result(query, {"time": f"{at_s:.3f}"}, "vector")
        with self._understood():
            values = pl.Series([float(row["value"][1]) for row in rows], dtype=pl.Float64)
            return _series_of(rows, labels).with_columns(value=values)

    def labels(self, query: str, at_s: float) -> list[dict[str, str]]:
        """Return the labels of the series of an instant query at a time, without the metric's name."""
        rows = self._result(query, {"time": f"{at_s:.3f}"}, "vector")
        with self._understood():
            return [{str(k): str(v) for k, v in row["metric"].items() if k != "__name__"} for row in rows]

    def samples(self, query: str, at_s: float, labels: Sequence[str]) -> pl.DataFrame:
        """Return the raw samples of a range selector that ends at `at_s`: labels, `at_s` and `value`."""
        rows = self._result(query, {"time": f"{at_s:.3f}"}, "matrix")
        with self._understood():
            series = [number for number, row in enumerate(rows) for _ in row["values"]]
            points = [(float(at), float(value)) for row in rows for at, value in row["values"]]
            found = pl.DataFrame(points, schema={"at_s": pl.Float64, "value": pl.Float64}, orient="row")
            return pl.concat([_series_of(rows, labels)[series], found], how="horizontal")

    def _result(self, query: str, when: dict[str, str], kind: str) -> list[Any]:  # JSON of a foreign server
        content = self._answered({"query": query} | when)
        with self._understood():
            answer = from_json(content)
            data = answer["data"]
            if answer["status"] != "success" or data["resultType"] != kind or not isinstance(data["result"], list):
                raise ValueError
            result: list[Any] = data["result"]
            warnings = [str(each) for each in answer.get("warnings") or ()]
        self.partial += any(not _REMARK.match(each) for each in warnings)
        return result

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, LookupError, AttributeError, pl.exceptions.PolarsError) as error:
            raise ConnectError(f"{self.address} answered, but not as Prometheus does; check the address") from error

    def _answered(self, form: dict[str, str]) -> bytes:
        for pause_s in (*PAUSES_S, math.nan):
            try:
                return self._attempt(form)
            except _Broken as broken:
                if math.isnan(pause_s):
                    raise ConnectError(
                        f"{self.address} gave no answer in {len(PAUSES_S) + 1} attempts ({broken}); hours read so far "
                        "are kept: repeat the command when it is up"
                    ) from broken
                self.sleep(max(pause_s, min(broken.wait_s, LONGEST_PAUSE_S)))
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, form: dict[str, str]) -> bytes:
        try:
            with self.client.stream("POST", "api/v1/query", data=form) as response:
                content = content_of(
                    response,
                    most_bytes=self.most_bytes,
                    limit_s=self.answer_s,
                    cure="select fewer series with --match",
                )
        except TooSlow as error:
            raise _Broken(str(error)) from error
        except FAULTS as error:
            raise _Broken(type(error).__name__) from error
        status = status_of(response)
        if response.status_code in TRY_AGAIN:
            asked = response.headers.get("Retry-After", "")
            raise _Broken(status, wait_s=float(asked) if asked.isdecimal() else 0.0)
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConnectError(f"{self.address} answered {status}; give its token in TAUT_PROMETHEUS_TOKEN")
        if response.status_code != HTTPStatus.OK:
            reason = reason_in(content, "error")
            raise ConnectError(
                f"{self.address} answered {status}{reason}; expected a Prometheus server; check the address"
            )
        return content


def _series_of(rows: Sequence[Any], labels: Sequence[str]) -> pl.DataFrame:  # JSON of a foreign server
    named = {name: [row["metric"].get(name, "") for row in rows] for name in labels}
    return pl.DataFrame(named, schema=dict.fromkeys(labels, pl.String), strict=True)


@contextmanager
def open_server(url: str, *, token: str | None = None, ca: Path | None = None) -> Iterator[Server]:
    """Open a Prometheus server by the address above `/api/v1`; `ca` is the file that verifies its certificate.

    A token goes into the header `Authorization`, never into a message. Redirects are not followed.
    """
    if token is not None and not all("!" <= sign <= "~" for sign in token):
        raise BadUsage("the Prometheus token has blanks or other signs; expected visible ASCII only")
    client = open_client(
        url,
        expected="the server's address is no http address; expected one like http://prometheus:9090",
        verify=_verified_by(ca),
        headers={"User-Agent": "taut"} | ({} if token is None else {"Authorization": f"Bearer {token}"}),
        timeout=TIMEOUT,
        follow_redirects=False,
    )
    with client:
        yield Server(client=client, address=address_of(client.base_url))


def _verified_by(ca: Path | None) -> ssl.SSLContext | bool:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise BadUsage(f"--ca {ca} cannot be read; expected a file of certificates in PEM form") from error
