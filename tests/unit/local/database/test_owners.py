import os
import subprocess
import sys
import textwrap
from pathlib import Path

from taskmq_local.database.owners import Owner, collect_dead_owners, is_alive


def python(code: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": ".:brokers"},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


LOOK = """
    import sys
    from pathlib import Path
    from taskmq_local.database.owners import is_alive
    print(is_alive(Path(sys.argv[1]), sys.argv[2]))
"""


def test_an_owner_is_alive_to_all_processes_until_it_is_released(tmp_path: Path) -> None:
    owner = Owner(tmp_path)

    assert is_alive(tmp_path, owner.name)
    # Reading from the same process must not drop the lock.
    assert python(LOOK, str(tmp_path), owner.name) == "True"

    owner.release()
    owner.release()
    assert not is_alive(tmp_path, owner.name)
    assert python(LOOK, str(tmp_path), owner.name) == "False"


def test_the_owner_of_a_dead_process_is_dead_even_if_its_file_exists(tmp_path: Path) -> None:
    name = python(
        """
        import os, sys
        from pathlib import Path
        from taskmq_local.database.owners import Owner
        print(Owner(Path(sys.argv[1])).name, flush=True)
        os._exit(0)
        """,
        str(tmp_path),
    )

    assert (tmp_path / "owners" / name).exists()
    assert not is_alive(tmp_path, name)


def test_a_forked_child_is_not_the_owner_and_does_not_keep_it_alive(tmp_path: Path) -> None:
    seen = python(
        """
        import os, sys, time
        from pathlib import Path
        from taskmq_local.database.owners import Owner, is_alive
        root = Path(sys.argv[1])
        owner = Owner(root)
        parent = os.getpid()
        told, tell = os.pipe()
        if os.fork() > 0:
            os.read(told, 1)
            os._exit(0)
        # The child has the descriptor too, and outlives its parent.
        print(is_alive(root, owner.name), flush=True)
        os.write(tell, b"!")
        while os.getppid() == parent:
            time.sleep(0.005)
        print(is_alive(root, owner.name), flush=True)
        os._exit(0)
        """,
        str(tmp_path),
    )

    assert seen.split() == ["True", "False"]


def test_old_files_of_dead_owners_are_deleted(tmp_path: Path) -> None:
    living = Owner(tmp_path)
    for name in ("1-young", "1-old"):
        (tmp_path / "owners" / name).touch()
    for name in ("1-old", living.name):
        os.utime(tmp_path / "owners" / name, (1, 1))

    collect_dead_owners(tmp_path)

    left = {path.name for path in (tmp_path / "owners").iterdir()}
    assert left == {"1-young", living.name}
    living.release()
