"""Routes about one job: why its run time is what is predicted, and what it would be with another request.

What is answered is worked out in `modelserve`, beside the event loop.
"""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.answers import answer
from modelserve.api.bodies import JsonBody
from modelserve.api.calls import call_of
from modelserve.api.operations import BODY, CALL, SLOT, Operation
from modelserve.callers import Scope
from modelserve.contract.jobs import ExplainAnswer, WhatIfAnswer
from modelserve.contract.requests import ExplainBody, WhatIfBody

TAG: Final = "jobs"

EXPLAIN: Final = JsonBody(ExplainBody)
WHAT_IF: Final = JsonBody(WhatIfBody)


async def explanations(request: Request) -> Response:
    """Explain the predicted run time of one job by its features."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await EXPLAIN.of(call)
    call.rows = 1
    ask = partial(call.service.explain_job, body, caller)
    return answer(call, await call.desk.slots.run(ask))


async def what_ifs(request: Request) -> Response:
    """Predict the run time of one job along one of its resources."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await WHAT_IF.of(call)
    call.rows = 1
    ask = partial(call.service.what_if, body, caller)
    return answer(call, await call.desk.slots.run(ask))


OPERATIONS: Final = (
    Operation(
        method="POST", path="/v1/explanations", endpoint=explanations, tag=TAG,
        summary="Why a job's predicted run time is what it is", body=ExplainBody, answer=ExplainAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/what-if", endpoint=what_ifs, tag=TAG,
        summary="A job's predicted run time along one resource", body=WhatIfBody, answer=WhatIfAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
)  # fmt: skip
