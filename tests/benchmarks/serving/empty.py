"""The least that a FastAPI endpoint can do: read the request of a prediction, check it, and answer nothing.

A second endpoint also walks the trees: the lower bound of what can be reached. Run as `... empty PORT BUNDLE`.
"""

import sys
from pathlib import Path

import numpy as np
import uvicorn
from fastapi import FastAPI

from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.trees.compiled import tree_outputs
from modelserve.contract.requests import PredictBody


def app_of(bundle: Path) -> FastAPI:
    """Return the two endpoints."""
    app = FastAPI()
    held = read_bundle(bundle)
    trees = held.forests[RUNTIME_TARGET]
    row = np.zeros((1, len(held.contract.names)), dtype=np.float32)

    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {}

    @app.post("/empty")
    async def empty(body: PredictBody) -> dict[str, str]:
        return {}

    @app.post("/trees")
    async def walked(body: PredictBody) -> dict[str, list[float]]:
        return {"raw": tree_outputs(trees, row)[0].tolist()}

    return app


if __name__ == "__main__":
    uvicorn.run(
        app_of(Path(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
