"""`hf:owner/name[@revision]`: a snapshot through huggingface_hub, its cache and its offline switch (HF_HUB_OFFLINE).

Downloads only what serving needs. huggingface_hub resumes and checks files by itself and shows its own progress.
"""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from server.catalogue.errors import ModelUnavailable

PREFIX = "hf:"
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>\S+))?")
_WANTED = ["*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*"]
_WANTED += ["special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template*"]
_UNWANTED = ["*/*", "consolidated*"]  # other formats of the same weights


def hub_snapshot(reference: str) -> tuple[Path, str]:
    """The local directory of a hub model, and its name ("owner/name"). Raises ModelUnavailable."""
    name = _NAME.fullmatch(reference.removeprefix(PREFIX))
    if name is None:
        raise ModelUnavailable(f"{reference!r} is not of the form hf:owner/name or hf:owner/name@revision")
    repo, revision = name["repo"], name["revision"]
    try:
        path = snapshot_download(repo, revision=revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
    except GatedRepoError as error:
        raise ModelUnavailable(
            f"hf:{repo} needs its terms accepted on the hub's page, and a token of that account in HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelUnavailable(f"hf:{repo} has no revision {revision!r}") from error
    except RepositoryNotFoundError as error:
        raise ModelUnavailable(f"hf:{repo} does not exist, or is private and HF_TOKEN does not open it") from error
    except LocalEntryNotFoundError as error:
        raise ModelUnavailable(
            f"hf:{repo} is not in the local cache and the hub can't be reached (no network, or HF_HUB_OFFLINE is set)"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelUnavailable(f"hf:{repo} could not be fetched: {reason}") from error
    return Path(path), repo
