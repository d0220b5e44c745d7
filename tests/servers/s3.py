"""A private server with the API of Amazon S3. Its data is gone once it ends."""

import sys
import urllib.error
import urllib.request

from tests.servers.ports import PortLease
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.server import Server, Source


class S3(Server):
    """A server without any bucket; it requires credentials and accepts any."""

    def __init__(self) -> None:
        super().__init__()
        self._endpoint = ""

    @property
    def endpoint(self) -> str:
        self._running_source()
        return self._endpoint

    def create_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def __repr__(self) -> str:
        return f"<S3 {self._endpoint}>"

    def _open(self) -> Source:
        lease = PortLease(1)
        (port,) = lease.ports
        self._endpoint = f"http://127.0.0.1:{port}"
        argv = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
        return LocalProcess(Keeper("s3"), Command(argv), lease=lease)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._endpoint}/moto-api/", timeout=2):
                return True
        except (OSError, urllib.error.URLError):
            return False
