"""What an API server does with an answer: it applies the patch, defaults requests, and refuses what breaks its rules.

Written after the API server's own validation, LimitRanger and QoS code, without the code under test.
"""

import base64
import copy
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
COMPUTE = ("cpu", "memory")
Json = dict[str, Any]

SUFFIXES = {
    "": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip


def recorded(name: str) -> Json:
    return json.loads((RECORDED / f"{name}.json").read_text())


def amount(value: object) -> Decimal:
    """Parse a quantity; raises what the API server would refuse."""
    found = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", str(value))
    if found is None:
        raise ValueError(f"quantity {value!r}")
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * SUFFIXES[suffix or ""]


def applied(document: Json, patch: list[Json]) -> Json:
    """Apply `add` and `replace` of RFC 6902, as strictly as the API server does."""
    document = copy.deepcopy(document)
    for operation in patch:
        assert operation["op"] in ("add", "replace"), operation
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place: Any = document
        for part in above:
            place = place[int(part)] if isinstance(place, list) else place[part]
        assert isinstance(place, dict), f"{operation['path']}: no object to add to"
        assert operation["op"] == "add" or last in place
        place[last] = copy.deepcopy(operation["value"])
    return document


def admitted(review: Json, answer: bytes) -> tuple[Json, Json]:
    """Return the response and the object after its patch; the response is one that an API server takes."""
    said = json.loads(answer)
    response = said["response"]
    assert (said["apiVersion"], said["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert response["uid"] == review["request"]["uid"]
    assert response["allowed"] is True
    assert ("patch" in response) == ("patchType" in response)
    assert response.get("patchType", "JSONPatch") == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"], validate=True)) if "patch" in response else []
    return response, applied(review["request"]["object"], patch)


def containers(spec: Json, *fields: str) -> list[Json]:
    return [each for name in fields or ("containers", "initContainers") for each in spec.get(name) or []]


def requests_of(container: Json) -> dict[str, Decimal]:
    """Return a container's requests, defaulted from its limits."""
    resources = container.get("resources") or {}
    return {
        name: amount(value)
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items()
    }


def limits_of(container: Json) -> dict[str, Decimal]:
    return {name: amount(value) for name, value in ((container.get("resources") or {}).get("limits") or {}).items()}


def qos(spec: Json) -> str:
    each = containers(spec)
    asked = [{name: value for name, value in requests_of(one).items() if name in COMPUTE and value} for one in each]
    capped = [{name: value for name, value in limits_of(one).items() if name in COMPUTE and value} for one in each]
    if not any(asked) and not any(capped):
        return "BestEffort"
    whole = all(len(one) == len(COMPUTE) for one in capped) and asked == capped
    return "Guaranteed" if whole else "Burstable"


def invalid(spec: Json) -> list[str]:
    """Return what the validation of a pod's resources refuses (422)."""
    found = []
    for each in containers(spec):
        asked, limits = requests_of(each), limits_of(each)
        for name, value in asked.items():
            if value < 0 or (name in limits and value > limits[name]):
                found.append(f"{each['name']}: {name} {value} above its limit {limits.get(name)}")
            if "/" in name and value != limits.get(name):
                found.append(f"{each['name']}: {name} is an extended resource, so request and limit are equal")
    return found


def out_of_range(spec: Json, ranges: list[Json]) -> list[str]:
    """Return what the LimitRanger refuses (403)."""
    found = []
    inner, first = containers(spec, "containers"), containers(spec, "initContainers")
    for item in ranges:
        if item["type"] == "Container":
            scopes = [(each["name"], requests_of(each), limits_of(each)) for each in inner + first]
        else:
            scopes = [("pod", _of_pod(inner, first, requests_of), _of_pod(inner, first, limits_of))]
        for name, asked, limits in scopes:
            for resource, least in item.get("min", {}).items():
                if resource not in asked or asked[resource] < amount(least):
                    found.append(f"{name}: {resource} {asked.get(resource)} below the least {least}")
                if resource in limits and limits[resource] < amount(least):
                    found.append(f"{name}: limit of {resource} below the least {least}")
            for resource, ratio in item.get("max_limit_request_ratio", {}).items():
                if not asked.get(resource) or not limits.get(resource):
                    found.append(f"{name}: {resource} without request or limit, but a ratio")
                elif limits[resource] / asked[resource] > amount(ratio):
                    found.append(f"{name}: {resource} ratio {limits[resource] / asked[resource]} above {ratio}")
    return found


def _of_pod(inner: list[Json], first: list[Json], of: Any) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for each in inner:
        for name, value in of(each).items():
            total[name] = total.get(name, Decimal(0)) + value
    for each in first:
        for name, value in of(each).items():
            total[name] = max(total.get(name, Decimal(0)), value)
    return total


def refusals(before: Json, after: Json, ranges: list[Json]) -> list[str]:
    """Return why an API server would refuse pod `after` although it would have taken `before`."""
    if invalid(before["spec"]) or out_of_range(before["spec"], ranges):
        return []
    return [*invalid(after["spec"]), *out_of_range(after["spec"], ranges)]


def check_kept(before: Json, after: Json) -> None:
    """Check that a pod or template kept everything but smaller requests of CPU and memory, and an annotation."""
    assert qos(after["spec"]) == qos(before["spec"])
    for old, new in zip(containers(before["spec"]), containers(after["spec"]), strict=True):
        asked, given = requests_of(old), requests_of(new)
        assert asked.keys() == given.keys()
        for name, value in given.items():
            assert 0 < value <= asked[name] or value == asked[name], f"{name}: {asked[name]} became {value}"
            assert name in COMPUTE or value == asked[name], f"{name} changed"
        if qos(before["spec"]) != "Guaranteed":
            assert limits_of(old) == limits_of(new)
    assert _bare(after) == _bare(before)


def _bare(pod: Json) -> Json:
    pod = copy.deepcopy(pod)
    pod["metadata"] = pod.get("metadata") or {}
    annotations = pod["metadata"].get("annotations") or {}
    pod["metadata"]["annotations"] = {k: v for k, v in annotations.items() if not k.startswith("taut.dev/")}
    for each in containers(pod["spec"]):
        each.pop("resources", None)
    return pod
