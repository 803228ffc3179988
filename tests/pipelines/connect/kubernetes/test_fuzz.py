"""Generated reviews: whatever is sent, no pod is refused because of taut. TAUT_FUZZ_REVIEWS sets how many."""

import json
import os
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipelines.connect.kubernetes.reviews import BadReview
from tests.pipelines.connect.kubernetes.advising import Asked, answer
from tests.pipelines.connect.kubernetes.api_server import (
    admitted,
    amount,
    check_kept,
    invalid,
    out_of_range,
    recorded,
    refusals,
)

PROFILE = settings.default.max_examples
"""25 in `make test`, 100 in `make test-slow`."""


def fuzzed(examples: int) -> settings:
    wanted = int(os.environ.get("TAUT_FUZZ_REVIEWS", examples))
    return settings(max_examples=wanted, deadline=None, suppress_health_check=list(HealthCheck))


CPU = st.sampled_from(["1m", "100m", "500m", "1", "1500m", "2", "6", "64", "0.1", "2e0", "6000m", "1k", "123456789n"])
MEMORY = st.sampled_from(
    ["1", "1Mi", "134217728", "1G", "4G", "4e9", "8Gi", "29Gi", "30000M", "1Ti", "1.5Gi", "128974848000m", "7340033"]
)
GPU = st.sampled_from(["1", "2", "8"])
GPU_NAMES = st.sampled_from([*["nvidia.com/gpu"] * 5, "amd.com/gpu", "nvidia.com/mig-1g.10gb", "example.com/fpga"])
LEAST = {
    "cpu": st.sampled_from(["1m", "100m", "500m", "1"]),
    "memory": st.sampled_from(["1", "1G", "1.5Gi", "7340033"]),
}
KEYS = st.sampled_from(["taut.dev/group", "a", "taut.dev/user", "app.kubernetes.io/name", "x~y/z"])
TEXTS = st.text(max_size=12)


@st.composite
def resources(draw: st.DrawFn, *, gpu: bool) -> dict[str, Any]:
    """Draw resources, mostly such as an API server takes: requests up to limits."""
    found: dict[str, Any] = {"requests": {}, "limits": {}}
    kind = draw(st.sampled_from(["limits", "equal", "mixed", "mixed"]))
    for name, amounts in (("cpu", CPU), ("memory", MEMORY)):
        given_to = draw(st.sampled_from(["none", "requests", "limits", "both", "equal"])) if kind == "mixed" else kind
        first, second = sorted((draw(amounts), draw(amounts)), key=amount)
        if given_to in ("requests", "both"):
            found["requests"][name] = first
        if given_to in ("limits", "both"):
            found["limits"][name] = second
        if given_to == "equal":
            found["requests"][name] = found["limits"][name] = first
    if gpu:
        name, count = draw(GPU_NAMES), draw(GPU)
        found["limits"][name] = count
        if draw(st.booleans()):
            found["requests"][name] = count
    return {name: values for name, values in found.items() if values or draw(st.booleans())}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.sampled_from([1, 1, 2, 3]))
    with_gpu = 1 if draw(st.integers(0, 9)) == 7 else 0
    containers = [
        {"name": f"c{i}", "image": "a", "resources": draw(resources(gpu=i == with_gpu))} for i in range(count)
    ]
    spec: dict[str, Any] = {"containers": containers, "restartPolicy": "Never"}
    if draw(st.integers(0, 3)) == 2:
        spec["initContainers"] = [{"name": "i", "image": "a", "resources": draw(resources(gpu=False))}]
        if draw(st.integers(0, 3)) == 2:
            spec["initContainers"][0]["restartPolicy"] = "Always"
    if draw(st.integers(0, 19)) == 7:
        spec["resources"] = {"requests": {"cpu": "8"}}
    metadata: dict[str, Any] = {"name": "p"}
    for field in ("labels", "annotations"):
        kind = draw(st.sampled_from(["none", "null", "some", "some"]))
        if kind == "some":
            metadata[field] = draw(st.dictionaries(KEYS, TEXTS, max_size=3))
        elif kind == "null":
            metadata[field] = None
    return {"metadata": metadata, "spec": spec} if draw(st.integers(0, 9)) != 7 else {"spec": spec}


@st.composite
def ranges(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for _ in range(draw(st.sampled_from([1, 2, 0]))):
        item: dict[str, Any] = {"type": draw(st.sampled_from(["Container", "Pod"]))}
        if not draw(st.booleans()):
            name = draw(st.sampled_from(["cpu", "memory"]))
            item["min"] = {name: draw(LEAST[name])}
        if draw(st.booleans()):
            item["max_limit_request_ratio"] = {
                draw(st.sampled_from(["cpu", "memory"])): draw(st.sampled_from([1, 2, "3.5"]))
            }
        found.append(item)
    return found


def of_pod(pod: dict[str, Any]) -> dict[str, Any]:
    review = recorded("pod-of-job")
    review["request"]["object"] = {"kind": "Pod", "apiVersion": "v1", **pod}
    return review


@fuzzed(3 * PROFILE)
@given(pods(), ranges(), st.sampled_from(["leave", "shrink"]), st.floats(0.0, 1.0))
def test_no_pod_is_refused_because_of_taut(
    pod: dict[str, Any], limit_ranges: list[dict[str, Any]], guaranteed: str, share: float
) -> None:
    assume(not invalid(pod["spec"]) and not out_of_range(pod["spec"], limit_ranges))
    review, ask = of_pod(pod), Asked(share=share)
    given_to = {"limit_ranges": limit_ranges, "guaranteed": guaranteed}

    response, after = admitted(review, answer(review, ask, **given_to))

    assert not response["auditAnnotations"]["reason"].startswith("failed")
    before = review["request"]["object"]
    assert not refusals(before, after, limit_ranges)
    check_kept(before, after)
    again = of_pod(after)
    assert admitted(again, answer(again, ask, **given_to))[1] == (
        after if "patch" in response else again["request"]["object"]
    )


LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
INNER = LEAF | st.lists(LEAF, max_size=3) | st.dictionaries(TEXTS, LEAF, max_size=3)
JSON = LEAF | st.lists(INNER, max_size=3) | st.dictionaries(TEXTS, INNER, max_size=3)


@st.composite
def twisted(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a review in which some values are of another type."""
    review = recorded(draw(st.sampled_from(["pod-of-job", "pod-gated", "job-suspended", "pod-many-containers"])))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = review["request"]
        for _ in range(draw(st.integers(0, 8))):
            keys = list(range(len(place))) if isinstance(place, list) else list(place)
            inner = [key for key in keys if isinstance(place[key], dict | list) and place[key]]
            if not inner:
                break
            place = place[draw(st.sampled_from(inner))]
        keys = list(range(len(place))) if isinstance(place, list) else list(place)
        place[draw(st.sampled_from(keys))] = draw(JSON)
    return review


@fuzzed(PROFILE)
@given(twisted())
def test_twisted_reviews_are_allowed_or_refused_as_http(review: dict[str, Any]) -> None:
    try:
        said = answer(json.dumps(review).encode())
    except BadReview:
        return

    response = json.loads(said)["response"]
    assert response["uid"] == review["request"]["uid"]
    assert response["allowed"] is True
    assert not response["auditAnnotations"]["reason"].startswith("failed")
