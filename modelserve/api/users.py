"""The route about users: what their jobs taught can be forgotten.

What is erased, and where, is `modelserve.learning.erasure`'s business.
"""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.calls import call_of
from modelserve.api.learning import said
from modelserve.api.operations import CALL, SLOT, Operation, Parameter
from modelserve.api.queries import asked_for, in_path
from modelserve.callers import Scope
from modelserve.contract.learning import ErasureAnswer

TAG: Final = "users"


async def erasure(request: Request) -> Response:
    """Forget what a user's jobs taught."""
    call = call_of(request)
    caller = call.allowed(Scope.ADMIN)
    asked = asked_for(request, required=("trace",))
    user = in_path(request, "user")
    return said(await call.desk.slots.run(partial(call.service.erase_user, caller, user=user, **asked)))


OPERATIONS: Final = (
    Operation(
        method="DELETE", path="/v1/users/{user}/history", endpoint=erasure, tag=TAG,
        summary="Forget what a user's jobs taught", answer=ErasureAnswer, faults=(*CALL, 404, 422, *SLOT), slashes=True,
        parameters=(
            Parameter(name="user", said="The user."),
            Parameter(name="trace", said="Of this trace.", place="query", required=True),
            Parameter(name="cluster", said="Of this cluster only.", place="query"),
        ),
    ),
)  # fmt: skip
