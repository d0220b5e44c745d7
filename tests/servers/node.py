"""A RabbitMQ node as processes and files: its name, ports, configuration, environment."""

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.servers.errors import ServerFailed
from tests.servers.installation import PATH, Installation
from tests.servers.ports import PortLease, accepts
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.waiting import eventually


@dataclass(frozen=True, slots=True)
class Membership:
    """The shared data of the nodes of a cluster: the cookie, the common epmd, and the members."""

    cookie: str
    epmd_port: int
    names: tuple[str, ...]


class Node:
    """A RabbitMQ node: the source of a `RabbitMQ` if its programs are on this machine."""

    def __init__(
        self,
        installation: Installation,
        *,
        config: Mapping[str, str],
        advanced_config: str,
        plugins: Sequence[str] = (),
        name: str = "x@localhost",
        membership: Membership | None = None,
    ) -> None:
        self._installation = installation
        lease = PortLease(4)
        self.port, self.management_port, self._dist_port, own_epmd_port = lease.ports
        self._starts_epmd = membership is None
        self._membership = membership or Membership(secrets.token_hex(16), own_epmd_port, (name,))
        self._name = name
        self._keeper = Keeper("rabbitmq")
        self._env = self._write_files(config, advanced_config, plugins)
        self._process = LocalProcess(
            self._keeper,
            Command(installation.command("rabbitmq-server"), {**self._env, **_FOREGROUND, **self._preload()}),
            lease=lease,
        )

    def start(self) -> None:
        if self._starts_epmd and not accepts(self._membership.epmd_port):
            start_epmd(self._keeper, self._installation, self._membership.epmd_port)
        self._process.start()

    def stop(self, patience: timedelta) -> None:
        self._process.stop(patience)

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def failure(self) -> str | None:
        return self._process.failure()

    def log(self) -> str:
        return self._process.log()

    def pids(self) -> list[int]:
        return self._process.pids()

    def close(self) -> None:
        self._process.close()

    def ctl(self, *arguments: str) -> str:
        """Return the output of rabbitmqctl for this node; takes a second or two."""
        return self._installation.call("rabbitmqctl", "-q", "-n", self._name, *arguments, env=self._env)

    def evaluate(self, expression: str) -> str:
        """Evaluate an Erlang expression on this node, as `{ok, VALUE}`; no other Erlang machine is started."""
        result = subprocess.run(
            self._installation.run("erl_call", "-sname", self._name, "-c", self._membership.cookie, "-e"),
            env={"PATH": PATH, **self._env},
            input=f"{expression}\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode != 0 or not result.stdout.startswith("{ok, "):
            raise ServerFailed(f"{expression} on {self._name} failed: {result.stderr or result.stdout}")
        return result.stdout.strip()

    def _write_files(self, config: Mapping[str, str], advanced_config: str, plugins: Sequence[str]) -> dict[str, str]:
        """Write the node's startup files; return the environment that points to them."""
        base = self._keeper.directory
        home = base / "home"
        home.mkdir()
        cookie = home / ".erlang.cookie"
        cookie.write_text(self._membership.cookie)
        cookie.chmod(0o400)
        (base / "enabled_plugins").write_text(f"[{', '.join(('rabbitmq_management', *plugins))}].\n")
        settings = {**self._default_config(), **config}
        (base / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        if advanced_config:
            (base / "advanced.config").write_text(advanced_config)
        return self._environment(base)

    def _preload(self) -> dict[str, str]:
        """Let the Erlang machine load the modules of all applications in one go, before RabbitMQ starts.

        One by one, on demand, they take a third of a start's processor time.
        """
        file = self._keeper.directory / "load.erl"
        file.write_text(_LOAD)
        return {"ERL_AFLAGS": f"-eval \"file:eval('{file}')\""}

    def _default_config(self) -> dict[str, str]:
        peers = self._membership.names if len(self._membership.names) > 1 else ()
        return {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(self.management_port),
            # Absolute and far away: an alarm blocks every publisher, and must only come if a test requests it.
            "vm_memory_high_watermark.absolute": "2GB",
            "disk_free_limit.absolute": "1MB",
            "log.console": "false",
            **{f"cluster_formation.classic_config.nodes.{n}": peer for n, peer in enumerate(peers, 1)},
        }

    def _environment(self, base: Path) -> dict[str, str]:
        port, dist_port = str(self.port), str(self._dist_port)
        erlang = [
            *("+S", "1:1", "+sbwt", "none"),
            # A name given here saves RabbitMQ the Erlang machine that it starts only to get an epmd (0.5 s); the
            # ports of the distribution then come from here too.
            *("-start_epmd", "false", "-sname", self._name),
            *("-kernel", "inet_dist_use_interface", "{127,0,0,1}"),
            *("-kernel", "inet_dist_listen_min", dist_port, "-kernel", "inet_dist_listen_max", dist_port),
        ]
        return {
            "HOME": str(base / "home"),
            "LANG": "C.UTF-8",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_PORT": str(self._membership.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": dist_port,
            "RABBITMQ_MNESIA_BASE": str(base / "mnesia"),
            "RABBITMQ_LOG_BASE": str(base / "log"),
            "RABBITMQ_CONFIG_FILE": str(base / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(base / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(base / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(erlang),
        }


# Makes the start script become the Erlang machine instead of waiting for it: signals then reach the node.
_FOREGROUND = {"detached": "true"}


# The applications that RabbitMQ and its console depend on, as their files list them; it loads their modules in any
# case. Once a minute a node starts another Erlang machine, to have an epmd if there is none, and one that joins a
# cluster starts one as its peer. With the node's environment each would load all this too, and cost as much as its
# start.
_LOAD = """
os:unsetenv("ERL_AFLAGS"),
Read = fun(Name) ->
    case file:consult(code:where_is_file(atom_to_list(Name) ++ ".app")) of
        {ok, [{application, _, Facts}]} -> Facts;
        _ -> []
    end
end,
Collect = fun Collect(Name, Found) ->
    case maps:is_key(Name, Found) of
        true -> Found;
        false ->
            Facts = Read(Name),
            Names = proplists:get_value(applications, Facts, []),
            lists:foldl(Collect, Found#{Name => proplists:get_value(modules, Facts, [])}, Names)
    end
end,
Found = lists:foldl(Collect, #{}, [rabbitmq_prelaunch, rabbit, rabbitmq_management]),
code:ensure_modules_loaded(lists:append(maps:values(Found))).
"""


def start_epmd(keeper: Keeper, installation: Installation, port: int) -> None:
    """Start Erlang's port mapper, not as a daemon, and return when it answers."""
    keeper.spawn("epmd", Command(installation.run("epmd", "-port", str(port), "-address", "127.0.0.1")))
    try:
        eventually(lambda: accepts(port), "epmd answering")
    except TimeoutError as error:
        raise ServerFailed(f"epmd did not start on port {port}: {keeper.log_tail('epmd')}") from error
