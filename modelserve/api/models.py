"""Routes about models: which there are, what their answers depend on, and their cards.

All of it is within the caller's reach, and in memory but for comparisons, which are read from the store beside the
event loop; what is shown is `modelserve.calls.catalogue`'s business.
"""

from functools import partial
from typing import Final, Literal, cast

from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.calls import call_of
from modelserve.api.learning import said
from modelserve.api.operations import CALL, SLOT, Operation, Parameter
from modelserve.api.problems import Refusal
from modelserve.api.queries import asked_for
from modelserve.bundle.champions import ALIASES, CHAMPION
from modelserve.callers import Scope
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelAnswer, ModelsAnswer

TAG: Final = "models"


async def models(request: Request) -> Response:
    """List the models."""
    call = call_of(request)
    return said(call.service.list_models(call.allowed(Scope.PREDICT)))


async def model(request: Request) -> Response:
    """Show one model."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return said(await call.desk.slots.run(partial(call.service.show_model, caller, request.path_params["name"])))


async def importances(request: Request) -> Response:
    """Show what a model's answers depend on."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return said(call.service.importances_of(caller, request.path_params["name"], _alias(request)))


async def card(request: Request) -> Response:
    """Show a model's card."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return said(call.service.card_of(caller, request.path_params["name"], _alias(request)))


def _alias(request: Request) -> Literal["champion", "challenger"]:
    alias = asked_for(request).get("alias", CHAMPION)
    if alias not in ALIASES:
        expected = f"one of {', '.join(ALIASES)}"
        raise Refusal(422, f"query.alias: expected {expected}", faults=[{"field": "query.alias", "expected": expected}])
    return cast("Literal['champion', 'challenger']", alias)


NAME: Final = Parameter(name="name", said="Registered name of a model, as `runtime.pai.ctr`.")
ALIAS: Final = Parameter(
    name="alias", said="Which of its versions; the champion by default.", place="query", among=ALIASES
)

OPERATIONS: Final = (
    Operation(
        method="GET", path="/v1/models", endpoint=models, summary="The models within reach", tag=TAG,
        answer=ModelsAnswer, faults=CALL,
    ),
    Operation(
        method="GET", path="/v1/models/{name}", endpoint=model, summary="One model: versions, aliases, figures",
        tag=TAG, answer=ModelAnswer, faults=(*CALL, 404, *SLOT), parameters=(NAME,),
    ),
    Operation(
        method="GET", path="/v1/models/{name}/importances", endpoint=importances, tag=TAG,
        summary="What a model's answers depend on", answer=ImportancesAnswer, faults=(*CALL, 404, 422),
        parameters=(NAME, ALIAS),
    ),
    Operation(
        method="GET", path="/v1/models/{name}/card", endpoint=card, summary="A model's card", tag=TAG,
        answer=CardAnswer, faults=(*CALL, 404, 422), parameters=(NAME, ALIAS),
    ),
)  # fmt: skip
