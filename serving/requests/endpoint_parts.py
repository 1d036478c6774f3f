"""Parts of an endpoint that its HTTP and gRPC servers share."""

from dataclasses import dataclass

from serving.engine.backends import ServedVersion
from serving.engine.catalog import Catalog
from serving.engine.predictor import Predictor
from serving.engine.settings import Settings
from serving.requests.access import AccessControl


@dataclass(frozen=True)
class EndpointParts:
    """Parts of an endpoint that another server, for another protocol, shares with this one."""

    settings: Settings
    catalog: Catalog[ServedVersion]
    predictor: Predictor
    access: AccessControl
