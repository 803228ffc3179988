"""Routes about models: list, details, feature importances and model cards.

Models are in memory; only the comparisons with challengers are read from the store, in a thread (`Slots`).
Responses are built by `modelserve.calls.catalogue`. Added by `modelserve.api.app`.
"""

from functools import partial
from typing import Final, Literal, cast

from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import asked_for
from modelserve.api.calls import call_of
from modelserve.api.learning import json_response
from modelserve.api.operations import CALL, SLOT, Operation, Parameter
from modelserve.api.problems import Refusal
from modelserve.bundle.champions import ALIASES, CHAMPION
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelAnswer, ModelsAnswer
from modelserve.scopes import Scope

TAG: Final = "models"


async def models(request: Request) -> Response:
    """List the models that the caller may use."""
    call = call_of(request)
    return json_response(call.service.list_models(call.allowed(Scope.PREDICT)))


async def model(request: Request) -> Response:
    """Return one model: versions, aliases, metrics, and the comparison with its challenger."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return json_response(
        await call.desk.slots.run(partial(call.service.show_model, caller, request.path_params["name"]))
    )


async def importances(request: Request) -> Response:
    """Return the importances of a model's features."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return json_response(call.service.importances_of(caller, request.path_params["name"], _alias(request)))


async def card(request: Request) -> Response:
    """Return a model's card."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return json_response(call.service.card_of(caller, request.path_params["name"], _alias(request)))


def _alias(request: Request) -> Literal["champion", "challenger"]:
    alias = asked_for(request).get("alias", CHAMPION)
    if alias not in ALIASES:
        expected = f"one of {', '.join(ALIASES)}"
        raise Refusal(422, f"query.alias: expected {expected}", faults=[{"field": "query.alias", "expected": expected}])
    return cast("Literal['champion', 'challenger']", alias)


NAME: Final = Parameter(name="name", description="Registered name of a model, as `runtime.pai.ctr`.")
ALIAS: Final = Parameter(
    name="alias", description="Which of its versions; the champion by default.", place="query", among=ALIASES
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
