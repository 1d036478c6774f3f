"""Answers of the endpoint about itself and its models, in the terms of the Open Inference Protocol."""

import asyncio
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from serving.engine.backends import ServedVersion
from serving.engine.catalog import Catalog
from serving.engine.settings import Settings
from serving.errors import DrainingError, ModelError, UnavailableError
from serving.protocols import open_inference, triton

# Version of this program.
VERSION = metadata.version("highway-keras")


@dataclass(frozen=True)
class About:
    """Answers that are the same over HTTP and gRPC.

    Args:
        catalog: the served versions.
        settings: settings of the endpoint.
    """

    catalog: Catalog[ServedVersion]
    settings: Settings

    async def check_ready(self) -> None:
        """Checks that every model has been loaded or refused, and that one of them answers.

        Raises:
            DrainingError: the endpoint is about to stop.
            UnavailableError: models are still being loaded.
            ModelError: no model answers.
        """
        self._check_staying()
        # Of one snapshot: a model may be dropped at any time.
        states = [state.served for state in self.catalog.models().values()]
        served = [versions[max(versions)] for versions in states if versions]
        if self.catalog.loading:
            raise UnavailableError(f"the models are still being loaded, {len(served)} so far.")
        if not served:
            raise ModelError("no model is served. Export one with `highway export`; /v1/models lists refused versions.")
        if not any(await asyncio.gather(*(one.ready() for one in served))):
            raise ModelError("no model can predict at the moment.")

    async def check_model_ready(self, served: ServedVersion) -> None:
        """Checks that a version answers.

        Raises:
            DrainingError: the endpoint is about to stop.
            ModelError: the version does not answer.
        """
        self._check_staying()
        if not await served.ready():
            raise ModelError(f"model {served.manifest.name!r} cannot predict at the moment.")

    def metadata(self, served: ServedVersion) -> dict[str, Any]:
        """Returns inputs and outputs of a model."""
        return open_inference.metadata(served.manifest, served.platform, self._versions(served))

    def config(self, served: ServedVersion) -> dict[str, Any]:
        """Returns the configuration of a model; see `serving.protocols.triton`."""
        return triton.config(served.manifest, served.platform, self._versions(served), self.settings.images)

    def index(self, *, ready: bool) -> list[dict[str, str]]:
        """Returns the versions in the repository with their states; only those that answer, if `ready`."""
        states = sorted(self.catalog.models().items())
        found = [(name, one) for name, state in states for one in state.statuses(self.catalog.problem)]
        return triton.index([(name, one.version, one.state, one.reason) for name, one in found], ready)

    def statistics(self, name: str | None, version: int | None) -> dict[str, Any]:
        """Returns the statistics of served versions, in this process.

        Args:
            name: name of the model; None is all models.
            version: number of the version; None is all versions in service.

        Raises:
            UnknownModelError: there is no such model or version.
        """
        if name is not None:
            found = [self.catalog.find(name, version)]
            # The model may have been dropped since.
            if version is None and (state := self.catalog.models().get(name)):
                found = [*state.served.values()] or found
        else:
            found = [one for _, state in sorted(self.catalog.models().items()) for one in state.served.values()]
        return {"model_stats": [triton.statistics(one.manifest, one.statistics) for one in found]}

    def _check_staying(self) -> None:
        if self.settings.draining.is_set() or self.settings.closing.is_set():
            raise DrainingError

    def _versions(self, served: ServedVersion) -> list[int]:
        state = self.catalog.models().get(served.manifest.name)
        return sorted(state.served if state else [served.manifest.version])
