"""Include arrows: a file includes its own room, or a lower room through room/room.h; src/pg sees only tb.h of the engine."""

import os
import re
import subprocess
import sys

LEVEL = {"base": 0, "codec": 1, "io": 1, "dev": 1, "zarr": 2, "block": 3, "hsi": 4, "dataset": 5, "stream": 6, "streamer": 7,
         "pg": 7}


def server_headers():
    """Top folders and files of the server's include directory, to know its headers by."""
    try:
        done = subprocess.run(["pg_config", "--includedir-server"], capture_output=True, text=True, check=True)
        names = set(os.listdir(done.stdout.strip()))
    except (OSError, subprocess.CalledProcessError):
        names = set()
    return names | {"postgres.h", "postgres_fe.h", "c.h", "fmgr.h", "miscadmin.h", "access", "catalog", "commands", "executor",
                    "foreign", "funcapi.h", "libpq", "nodes", "optimizer", "parser", "storage", "tcop", "utils"}


def quoted(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if found:
                yield number, found.group(1), found.group(2)


def check_engine(path, room, number, name):
    """A problem with an include of an engine file, or None."""
    if name == "tb.h":
        return None if room == "streamer" else "an engine file includes tb.h, the face for hosts"
    target = name.split("/")[0]
    if "/" not in name:
        return f'"{name}": write it with its room'
    if target not in LEVEL:
        return f'"{name}": no such room'
    if target == room:
        return None
    if LEVEL[target] >= LEVEL[room]:
        return f'"{name}": {target} is not below {room}'
    # L0 is plain headers for everyone; other rooms have one face
    if target != "base" and name != f"{target}/{target}.h":
        return f'"{name}": another room is included through {target}/{target}.h'
    return None


def check_pg(name, server):
    if name == "tb.h" or name.startswith("pg/"):
        return None
    if name.split("/")[0] in LEVEL:
        return f'"{name}": src/pg includes only tb.h of the engine'
    if name.split("/")[0] not in server:
        return f'"{name}": neither the server\'s nor ours'
    return None


def problems(root):
    server = server_headers()
    for room in sorted(LEVEL):
        folder = os.path.join(root, "src", room)
        if not os.path.isdir(folder):
            continue
        for file in sorted(os.listdir(folder)):
            if not file.endswith((".c", ".h")):
                continue
            path = os.path.join(folder, file)
            for number, mark, name in quoted(path):
                if room == "pg":
                    problem = check_pg(name, server) if mark == '"' else None
                elif mark == '"':
                    problem = check_engine(path, room, number, name)
                elif name.split("/")[0] in server and name.split("/")[0] not in ("c.h", "port", "regex", "common", "lib"):
                    problem = f"<{name}> is a header of the server"
                else:
                    problem = None
                if problem:
                    yield f"{os.path.relpath(path, root)}:{number}: {problem}"


if __name__ == "__main__":
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = list(problems(root))
    print("\n".join(found))
    sys.exit(1 if found else 0)
