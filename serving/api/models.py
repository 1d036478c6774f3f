"""`GET /models`: what is served, for the page and for `serving.client`."""

from fastapi import APIRouter

from serving.answers import ModelInput, ServedModel
from serving.api.describe import answers
from serving.backends import Served
from serving.catalog import Catalog


def router(catalog: Catalog[Served]) -> APIRouter:
    """The route."""
    made = APIRouter(tags=["Pictures"])

    @made.get("/models", summary="What is served", openapi_extra=answers(None))
    async def models() -> list[ServedModel]:
        # The catalog changes in another thread: each entry is looked at once.
        return [
            ServedModel(
                name=name,
                versions=tuple(sorted(served, reverse=True)),
                labels=entry.release.labels,
                failed={version: refusal.why for version, refusal in entry.failed.items()},
                wrong=entry.wrong or catalog.wrong,
                input=ModelInput(shape=manifest.input.shape[1:], pictures=manifest.pictures),
                gates=manifest.gates is not None,
                classes=manifest.labels,
            )
            for name, entry in sorted(catalog.entries().items())
            if (served := entry.served)
            for manifest in [served[max(served)].manifest]
        ]

    return made
