"""Routes about the service itself: liveness, readiness and metrics."""

from functools import partial
from typing import Final, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from modelserve.api.calls import call_of
from modelserve.api.problems import Refusal
from modelserve.api.routes import CALL, OPEN_CALL, Operation
from modelserve.contract.models import Ready
from modelserve.errors import Forbidden
from modelserve.loading.sync import read_mirror_state

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Alive(BaseModel):
    """The reply of a live process."""

    status: Literal["ok"] = "ok"


async def healthz(_: Request) -> Response:
    """Reply with 200, which shows that the process is alive."""
    return Response(b'{"status":"ok"}', media_type="application/json")


async def readyz(request: Request) -> Response:
    """Report whether this worker should receive calls, and the reason if not (503)."""
    state = readiness(request)
    headers = None if state.status == "ready" else {"retry-after": "1"}
    return JSONResponse(state.model_dump(mode="json"), 200 if state.status == "ready" else 503, headers)


async def metrics(request: Request) -> Response:
    """Return the metrics of all callers; a token must not be bound to a trace or a cluster."""
    call = call_of(request)
    caller = call.caller
    if caller is None or caller.traces is not None or caller.clusters is not None:
        raise Forbidden(
            "the token is limited to traces or clusters, expected one that is not, since metrics cover all of them"
        )
    return Response(call.desk.metrics.page(), media_type=PROMETHEUS)


def check_ready(request: Request) -> None:
    """Raise `Refusal` (503) if the worker is not ready."""
    state = readiness(request)
    if state.status != "ready":
        raise Refusal(503, f"not ready: {state.status}")


def readiness(request: Request) -> Ready:
    """Return the readiness of the worker; only models of traces that the caller may use are named."""
    call, draining = call_of(request), request.app.state.draining
    service, store = call.desk.service, call.desk.service.store
    snapshot = service.models.current
    caller = call.caller
    mirror = None if caller is None else read_mirror_state(service.settings.bundles, now_s=service.clock())

    def shown(name: str) -> bool:
        return caller is not None and caller.reaches(f"{name}..".split(".")[1])

    return Ready(
        status="draining" if draining else "no store" if store.lost else "ready" if snapshot.champions else "no model",
        generation=snapshot.generation,
        serving=len(snapshot.champions),
        failing=len(snapshot.failures),
        models=sorted(model.reference for name, model in snapshot.champions.items() if shown(name)),
        failures={name: why for name, why in sorted(snapshot.failures.items()) if shown(name)},
        mirror=mirror and mirror.model_copy(update={"failing": [name for name in mirror.failing if shown(name)]}),
        store=service.feed.trouble or store.unwritten if caller is not None else None,
    )


open_get = partial(Operation, method="GET", tag="health", faults=OPEN_CALL, needs_token=False)
OPERATIONS: Final = (
    open_get(path="/healthz", endpoint=healthz, summary="Whether the process answers", answer=Alive),
    open_get(
        path="/readyz", endpoint=readyz, summary="Whether calls should be sent here", answer=Ready, not_ready=Ready
    ),
    Operation(
        method="GET", path="/metrics", endpoint=metrics, summary="Metrics, as Prometheus reads them", tag="health",
        answer="text/plain", faults=CALL, any_query=True,
    ),
)  # fmt: skip
