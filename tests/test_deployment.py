"""The files that deploy kvell, read by the tools that will read them: Kubernetes' schemas, systemd, the shell."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from server.settings import SETTINGS

DOCKER = Path(__file__).parents[1] / "docker"
MANIFESTS = sorted((DOCKER / "kubernetes").iterdir())
KUBERNETES = "1.31"
KEPT = ("COPY", "USER", "ENTRYPOINT", "CMD")


def _manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "kubernetes" / name).read_text())


@pytest.mark.parametrize("path", [each for each in MANIFESTS if each.stem != "podmonitor"], ids=lambda path: path.name)
def test_kubernetes_knows_every_field(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    manifest = _manifest("deployment.yaml")
    manifest["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_probes_ask_the_right_endpoint() -> None:
    container = _manifest("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    asked = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert asked == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}


def test_the_grace_period_holds_the_pause_and_the_drain() -> None:
    pod = _manifest("deployment.yaml")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    drain = next(int(each["value"]) for each in container["env"] if each["name"] == "KVELL_DRAIN_TIMEOUT")
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause + drain < pod["terminationGracePeriodSeconds"]


def test_the_parts_find_each_other() -> None:
    deployment, service = _manifest("deployment.yaml"), _manifest("service.yaml")
    monitor, scaler = _manifest("podmonitor.yaml"), _manifest("hpa.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    port = deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert [service["spec"]["ports"][0]["targetPort"], monitor["spec"]["podMetricsEndpoints"][0]["port"]] == [port] * 2
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def _variables(text: str) -> set[str]:
    return set(re.findall(r"\bKVELL_[A-Z_]+\b", text)) - {"KVELL_NAME", "KVELL_MODEL_FILE"}


@pytest.mark.parametrize(
    "path", [*MANIFESTS, DOCKER / "kvell.service", DOCKER / "Dockerfile.cuda", DOCKER.parent / "Dockerfile"], ids=str
)
def test_every_setting_it_uses_exists(path: Path) -> None:
    known = {each.env for each in SETTINGS} | {"KVELL_CACHE_DIR", "KVELL_ACCEPT_TERMS"}
    assert _variables(path.read_text()) <= known


def test_both_images_are_built_from_the_same_steps() -> None:
    """They differ in torch, comments and the GPU's own variables, in nothing that makes kvell."""

    def steps(path: Path) -> list[str]:
        return [line for line in path.read_text().splitlines() if line.startswith(KEPT)]

    assert steps(DOCKER / "Dockerfile.cuda") == steps(DOCKER.parent / "Dockerfile")


def test_compose_starts_with_what_it_mounts() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    mounts = [mount.split(":")[0] for service in compose["services"].values() for mount in service.get("volumes", ())]
    for source in mounts:
        assert (DOCKER / source).exists() if source.startswith(".") else source in compose["volumes"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "kvell.service"
    unit.write_text((DOCKER / "kvell.service").read_text().replace("/opt/kvell/bin/kvell", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_build_script_is_a_script() -> None:
    checked = subprocess.run(["bash", "-n", DOCKER / "build-test.sh"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
