"""Images of this machine's own programs, for machines without a registry.

An image has the programs, the libraries that they need, and the few files that make it act like the published image
of the same server. Equal programs make equal images.
"""

import io
import os
import re
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.installation import find_rabbitmq
from tests.servers.postgres import find_program
from tests.servers.redis import find_redis

_SHELL: Final = "/bin/sh"
_ELF: Final = b"\x7fELF"
_ACCOUNTS: Final = "root:x:0:0::/root:/bin/sh\npostgres:x:999:999::/var/lib/postgresql:/bin/sh\n"
_POSTGRES_START: Final = """\
#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb -U postgres -A scram-sha-256 --pwfile=/tmp/password --locale=C -E UTF8 --no-sync -D "$PGDATA"
    sed -i s/scram-sha-256/trust/ "$PGDATA/pg_hba.conf"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
fi
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image made of files of this machine.

    Attributes:
        programs: files, each with the libraries that it needs; a link is followed.
        trees: directories with their contents and the libraries of the programs in them.
        texts: files with their text.
        writable: directories with write permission for all users.
        changes: instructions of a Dockerfile: `USER`, `CMD`, `ENV`.
    """

    programs: tuple[str, ...]
    trees: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    writable: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def write(self, target: IO[bytes]) -> None:
        """Write the image's files as a tar archive."""
        with tarfile.open(fileobj=target, mode="w|") as archive:
            for path in sorted(self._files()):
                _add_file(archive, path)
            for name, text in sorted({"/etc/passwd": _ACCOUNTS, **self.texts}.items()):
                _add_text(archive, name, text)
            for name in ("/tmp", *self.writable):
                _add_directory(archive, name)

    def _files(self) -> set[Path]:
        found = {Path(program) for program in (_SHELL, *self.programs)}
        for tree in self.trees:
            found |= {path for path in Path(tree).rglob("*") if path.is_file()}
        found |= _libraries(found)
        return found | {target for path in found for target in _targets(path)}


def redis_image() -> Image:
    """Return an image like `redis`: the server accepts clients from outside without a password."""
    if (server := find_redis()) is None:
        raise ServerUnavailable("no Redis for an image: run `python -m tests.servers install redis`")
    start = f'#!/bin/sh\nshift\nexec {server} --protected-mode no "$@"\n'
    return Image(
        (server, str(Path(server).with_name("redis-cli"))),
        texts={"/start": start},
        changes=('ENTRYPOINT ["/bin/sh", "/start"]', 'CMD ["redis-server"]'),
    )


def postgres_image() -> Image:
    """Return an image like `postgres`: initialised at the first start, with the password in the environment."""
    if (server := find_program("postgres")) is None:
        raise ServerUnavailable("no PostgreSQL for an image: run `python -m tests.servers install postgres`")
    programs = Path(server).parent
    # The others are for languages and encodings that tests do not use, and LLVM, which is larger than the rest.
    modules = (str(programs.with_name("lib") / f"{name}.so") for name in ("plpgsql", "dict_snowball"))
    shared = _output(str(programs / "pg_config"), "--sharedir").strip()
    return Image(
        (*(str(programs / name) for name in ("postgres", "initdb", "psql", "pg_isready")), *modules, "/bin/sed"),
        trees=(shared,),
        texts={"/start": _POSTGRES_START},
        writable=("/var/lib/postgresql", "/var/run/postgresql"),
        changes=(
            "USER 999",
            "ENV PGDATA=/var/lib/postgresql/data",
            f"ENV PATH={programs}:/usr/bin:/bin",
            'ENTRYPOINT ["/bin/sh", "/start"]',
            'CMD ["postgres", "-h", "*", "-c", "fsync=off"]',
        ),
    )


def rabbitmq_image() -> Image:
    """Return an image like `rabbitmq:management`: RabbitMQ with its plugin, and guest may come from outside."""
    installation = find_rabbitmq(None)
    if installation is None:
        raise ServerUnavailable("no RabbitMQ for an image: run `python -m tests.servers install rabbitmq`")
    scripts = installation.scripts
    tools = (
        "basename",
        "cat",
        "date",
        "df",
        "dirname",
        "expr",
        "id",
        "mkdir",
        "readlink",
        "rm",
        "sed",
        "sleep",
        "stat",
    )
    return Image(
        (*(f"/usr/bin/{tool}" for tool in tools),),
        trees=(str(scripts.parent), _ERLANG),
        texts={
            "/etc/rabbitmq/rabbitmq.conf": "loopback_users = none\nlog.console = true\nlog.console.level = warning\n",
            "/etc/rabbitmq/enabled_plugins": "[rabbitmq_management].\n",
            "/usr/bin/rabbitmqctl": f'#!/bin/sh\nexec {scripts}/rabbitmqctl "$@"\n',
        },
        writable=("/var/lib/rabbitmq", "/var/log/rabbitmq"),
        changes=(
            "ENV HOME=/var/lib/rabbitmq",
            "ENV LANG=C.UTF-8",
            # Like nodes outside containers (`tests.servers.node`): busy waiting takes the tests' processor time.
            'ENV RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 1:1 +sbwt none"',
            "ENV RABBITMQ_NODENAME=rabbit@localhost",
            f"ENV PATH=/usr/bin:/bin:{_ERLANG}/bin",
            f'CMD ["{scripts}/rabbitmq-server"]',
        ),
    )


_ERLANG: Final = "/usr/lib/erlang"


def _libraries(paths: Iterable[Path]) -> set[Path]:
    """Return the libraries of the programs among these files, with their loader."""
    programs = [str(path) for path in paths if _is_program(path)]
    # It reports scripts and programs without libraries and continues.
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=60, check=False).stdout
    return {Path(found) for found in re.findall(r"(?m)^\t(?:\S+ => )?(/\S+) \(0x", said)}


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def _targets(path: Path) -> Iterator[Path]:
    """Return the target of a link, and the target of that."""
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path


def _add_file(archive: tarfile.TarFile, path: Path) -> None:
    member = tarfile.TarInfo(str(path).lstrip("/"))
    if path.is_symlink():
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        archive.addfile(member)
        return
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        member.size, member.mode = found.st_size, stat.S_IMODE(found.st_mode)
        archive.addfile(member, file)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name.lstrip("/"))
    member.size, member.mode = len(text.encode()), 0o755
    archive.addfile(member, io.BytesIO(text.encode()))


def _add_directory(archive: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name.lstrip("/"))
    member.type, member.mode = tarfile.DIRTYPE, 0o1777
    archive.addfile(member)


def _output(*argv: str) -> str:
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0:
        raise ServerFailed(f"{' '.join(argv)} failed: {result.stderr}")
    return result.stdout
