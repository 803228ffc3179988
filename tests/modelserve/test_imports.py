import subprocess
import sys
from pathlib import Path

import pytest

from tests.modelserve.mirrored import Folder

HEAVY = ("mlflow", "pandas", "sklearn")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_neither_answering_nor_loading_models_imports_mlflow_pandas_or_sklearn(
    small_bundles: dict[str, Path], folder: Folder
) -> None:
    found = run(
        "import sys, time\n"
        "from pathlib import Path\n"
        f"heavy = lambda: [name for name in {HEAVY} if name in sys.modules]\n"
        "import modelserve.bundle.bundle, modelserve.bundle.champions\n"
        "import modelserve.bundle.predictor, modelserve.calls.predictions\n"
        "import modelserve.bundle.flavor, modelserve.bundle.registry\n"
        "print('imported', heavy())\n"
        "from modelserve.bundle.bundle import read_bundle\n"
        "from modelserve.bundle.predictor import InProcessPredictor\n"
        "from modelserve.calls.recommendations import recommend\n"
        "from modelserve.contract.requests import JobRow\n"
        f"bundles = [read_bundle(Path(p)) for p in {[str(p) for p in small_bundles.values()]}]\n"
        "job = {'job_id': 'a', 'task_type': 'ctr', 'user': 'u2', 'group': 'g1', 'role': 'worker',\n"
        "       'request': {'cpu_cores': 6, 'mem_gib': 29.3, 'gpus': 0.5}}\n"
        "row = JobRow.model_validate(job)\n"
        "[answer] = recommend([row], InProcessPredictor(bundles={b.card.name: b for b in bundles}), trace='pai')\n"
        "assert answer['run_time_s']['p50'] > 0, answer\n"
        "print('answered', heavy())\n"
        "import modelserve.calls.catalogue, modelserve.calls.recommendations, modelserve.service\n"
        "from modelserve.loading.models import ModelSet\n"
        f"models = ModelSet(Path({str(folder.path)!r}), past=lambda trace: (), clock=time.time)\n"
        "models.refresh()\n"
        "assert len(models.current.champions) == 2, models.current.failures\n"
        "print('loaded', heavy())"
    )

    assert found.splitlines() == ["imported []", "answered []", "loaded []"]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["sklearn", "pandas", "xgboost"])
def test_a_process_that_has_loaded_one_of_them_keeps_the_whole_library(first: str) -> None:
    found = run(
        f"import {first}\n"
        "from modelserve.bundle.boosters import lean_xgboost\n"
        "print(lean_xgboost().compat.SKLEARN_INSTALLED)\n"
        "lean_xgboost().XGBRegressor()"
    )

    assert found == "True"


def test_a_process_that_has_loaded_none_gets_the_lean_library_and_can_import_them_afterwards() -> None:
    found = run(
        "from modelserve.bundle.boosters import lean_xgboost\n"
        "print(lean_xgboost().compat.SKLEARN_INSTALLED)\n"
        "import sklearn, pandas\n"
        "print('done')"
    )

    assert found.splitlines() == ["False", "done"]
