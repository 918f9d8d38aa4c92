"""House rules as checks: each prints its problems; the last line counts rules that hold and rules that do not.

A rule is a generator of problem texts; it raises Skip where what it looks at is not there yet.
"""

import glob
import os
import re
import subprocess
import sys

import includes

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENGINE = ("base", "codec", "io", "dev", "zarr", "block", "hsi", "dataset", "stream", "streamer")


class Skip(Exception):
    pass


def paths(*patterns):
    found = []
    for pattern in patterns:
        found += glob.glob(os.path.join(ROOT, pattern), recursive=True)
    return sorted(found)


def short(path):
    return os.path.relpath(path, ROOT)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def code_of(path):
    """A C file without comments and texts; lines keep their numbers."""

    def blank(match):
        kept = re.sub(r"[^\n]", " ", match.group(0))
        return kept if match.group(0).startswith("/") else '"' + kept[1:-1] + '"'

    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text_of(path), flags=re.S)


def engine_files():
    return paths(*(f"src/{room}/*.[ch]" for room in ENGINE))


def tracked():
    """Files that the project is made of, without data."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.splitlines() if done.returncode == 0 else []
    if not names:
        names = [short(p) for p in paths("src/**/*.*", "test/**/*.*", "docs/**/*.md", "sql/**/*.sql", "README.md", "Makefile")]
    return [n for n in names if os.path.isfile(os.path.join(ROOT, n)) and not n.startswith(("test/data/", "test/fuzz/corpus/"))
            and re.search(r"(\.(c|h|py|sh|md|sql|out|json|map|control)|Makefile|run)$", n)]


# ---- the rules ----

def include_arrows():
    """a file includes its own room or a lower room's face; no server header below src/pg"""
    yield from includes.problems(ROOT)


def version_only_in_compat():
    """PG_VERSION_NUM only in src/pg/compat.h"""
    for path in paths("src/**/*.[ch]"):
        if short(path) != "src/pg/compat.h" and "PG_VERSION_NUM" in text_of(path):
            yield f"{short(path)}: PG_VERSION_NUM"


def matches(files, pattern, why):
    for path in files:
        for number, line in enumerate(code_of(path).splitlines(), 1):
            found = re.search(pattern, line)
            if found:
                yield f"{short(path)}:{number}: {found.group(0).strip('( ')} {why}"


def banned_functions():
    """no strcpy, strcat, sprintf, strtok, atoi, alloca, strerror, gets; no sleep in src/pg"""
    banned = r"(?<![\w>.])(strcpy|strcat|v?sprintf|strtok|ato[ilf]|alloca|strerror|gets|tmpnam|mktemp)\s*\("
    yield from matches(paths("src/**/*.[ch]"), banned, "is banned")
    yield from matches(paths("src/pg/*.[ch]"), r"(?<![\w>.])(u|pg_u|nano)?sleep\s*\(", "in the server")


def counted_memory():
    """the engine's memory comes from tb_malloc and its family"""
    files = [p for p in engine_files() if short(p) not in ("src/base/mem.c",)]
    yield from matches(files, r"(?<![\w>.])(malloc|calloc|realloc|strdup|strndup|v?asprintf|posix_memalign)\s*\(",
                       "is not counted: use tb_malloc and its family")


def no_engine_globals():
    """the engine has no mutable globals"""
    # the key under which each thread finds its own scratch memory
    given = ("mine_key", "mine_ready")
    for path in engine_files():
        for number, line in enumerate(code_of(path).splitlines(), 1):
            if (re.match(r"(static\s+)?[A-Za-z_][\w \t*]*[\w\]]\s*(=.*)?[;{]?$", line) and re.match(r"static\s", line)
                    and not re.search(r"\bconst\b|\binline\b|\bpthread_once_t\b", line) and "(" not in line.split("=")[0]
                    and re.search(r"(;|=\s*\{?)\s*$", line) and not any(g in line for g in given)):
                yield f"{short(path)}:{number}: {line.strip()[:60]}"


def file_sizes():
    """no source or test file over 800 lines"""
    for path in paths("src/**/*.[chy]", "src/**/*.py", "test/**/*.[ch]", "test/**/*.py", "test/**/*.sh"):
        lines = text_of(path).count("\n")
        if lines > 800:
            yield f"{short(path)}: {lines} lines"
        elif lines > 600:
            print(f"    warning: {short(path)}: {lines} lines")


def functions(path):
    """(name, line, lines, parameters) of the functions of a C file in our layout."""
    lines = code_of(path).split("\n")
    start = None
    for number, line in enumerate(lines):
        if line.rstrip() == "{":
            start = number
        elif line.rstrip() == "}" and start is not None:
            head = start - 1
            while head > 0 and not re.match(r"[A-Za-z_]\w*\s*\(", lines[head]):
                head -= 1
            signature = " ".join(lines[head:start])
            inside = signature[signature.find("(") + 1 : signature.rfind(")")]
            depth = parameters = 0
            for c in inside:
                depth += {"(": 1, ")": -1}.get(c, 0)
                parameters += c == "," and depth == 0
            yield signature.split("(")[0].strip(), start + 1, number - start - 1, parameters + 1
            start = None


def function_sizes():
    """no function over 100 lines"""
    for path in paths("src/**/*.c", "test/**/*.c"):
        for name, line, lines, _ in functions(path):
            if lines > 100:
                yield f"{short(path)}:{line}: {name} has {lines} lines"
            elif lines > 60:
                print(f"    warning: {short(path)}:{line}: {name} has {lines} lines")


def parameter_counts():
    """6 parameters, 7 at most"""
    # signatures that PostgreSQL prescribes
    given = ("tbpg_get_plan", "watch_utility")
    for path in paths("src/**/*.c"):
        for name, line, _, parameters in functions(path):
            if parameters > 7 and name not in given:
                yield f"{short(path)}:{line}: {name} has {parameters} parameters"
            elif parameters == 7 and name not in given:
                print(f"    warning: {short(path)}:{line}: {name} has 7 parameters")


RESERVED = set("""all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc distinct do
else end except false fetch for foreign from grant group having in initially intersect into lateral leading limit localtime
localtimestamp not null offset on only or order placing primary references returning select session_user some symmetric
table then to trailing true union unique user using variadic when where window with authorization binary collation
concurrently cross current_schema freeze full ilike inner is isnull join left like natural notnull outer overlaps right
similar tablesample verbose between bigint bit boolean char character coalesce dec decimal exists extract float greatest
grouping inout int integer interval least national nchar none normalize nullif numeric out overlay position precision real
row setof smallint substring time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists
xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable""".split())


def install_sql():
    return "\n".join(text_of(p) for p in paths("sql/install/[0-9]*.sql"))


def sql_functions():
    return re.findall(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE|AGGREGATE)\s+(?:tensorbank\.)?\"?(\w+)\"?\s*\(",
                      install_sql())


def no_reserved_names():
    """no SQL function is named by a reserved word"""
    for name in sorted(set(sql_functions()) & RESERVED):
        yield f"sql/install: function {name}"


def script_is_strict():
    """the install script replaces nothing, and functions in SQL pin their search_path"""
    for path in paths("sql/install/*.sql"):
        text = re.sub(r"--[^\n]*|/\*.*?\*/", "", text_of(path), flags=re.S)
        if re.search(r"CREATE\s+OR\s+REPLACE|IF\s+NOT\s+EXISTS", text, re.I):
            yield f"{short(path)}: OR REPLACE or IF NOT EXISTS would take over somebody else's object"
        for statement in re.split(r";\s*\n", text):
            if re.search(r"LANGUAGE\s+(sql|plpgsql)", statement, re.I) and not re.search(r"search_path", statement) \
                    and not re.search(r"\bBEGIN\s+ATOMIC\b|\bRETURN\b", statement):
                yield f"{short(path)}: {' '.join(statement.split())[:80]} does not pin search_path"
        for name in re.findall(r"CREATE\s+(?:FUNCTION|PROCEDURE|TYPE|TABLE|VIEW)\s+(\S+)", text):
            if not name.startswith("tensorbank."):
                yield f"{short(path)}: {name} is not qualified"


def documented():
    """every function, setting and option has its line in docs/"""
    pages = paths("docs/**/*.md", "README.md")
    if not any(short(p) == "docs/sql-reference.md" for p in pages):
        raise Skip("docs/sql-reference.md is not there")
    text = "\n".join(text_of(p) for p in pages)
    # what a user never names: type input and output, operators' and handlers' functions
    hidden = r"(tensor|tensor_ref|handle)_(in|out|recv|send|eq|ne|lt|le|gt|ge|cmp|hash|hash_extended)$|handler$|validator$"
    names = {(f"function {n}", n) for n in sql_functions() if not re.match(hidden, n)}
    guc = text_of(os.path.join(ROOT, "src/pg/guc.c"))
    names |= {(f"setting {n}", n) for n in re.findall(r'"(tensorbank\.\w+)"', guc)}
    table = re.search(r"known_options\[\] = \{(.*?)\n\};", text_of(os.path.join(ROOT, "src/pg/option.c")), re.S).group(1)
    names |= {(f"option {n}", n) for n in re.findall(r'\{"(\w+)"', table)}
    for what, name in sorted(names):
        if not re.search(r"(?<![\w.])" + re.escape(name) + r"(?!\w)|tensorbank\." + re.escape(name) + r"(?!\w)", text):
            yield f"docs: {what} is not mentioned"


def expected_outputs():
    """pg_regress tests and expected files come in pairs"""
    tests = {os.path.basename(p)[:-4] for p in paths("sql/*.sql")}
    outputs = {os.path.basename(p)[:-4] for p in paths("expected/*.out")}
    for name in sorted(tests - outputs):
        yield f"sql/{name}.sql has no expected/{name}.out"
    for name in sorted(outputs - tests):
        yield f"expected/{name}.out has no sql/{name}.sql"


def no_unfinished():
    """nothing marked as unfinished"""
    marker = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b")
    for name in tracked():
        for number, line in enumerate(text_of(os.path.join(ROOT, name)).splitlines(), 1):
            if marker.search(line):
                yield f"{name}:{number}: {line.strip()[:80]}"


def no_machine_paths():
    """no path of the machine it was written on"""
    pattern = re.compile(r"(?:^|[\s\"'`(=:])/(?:wor" r"k|home/\w+)(?:/|\b)")
    for name in tracked():
        for number, line in enumerate(text_of(os.path.join(ROOT, name)).splitlines(), 1):
            if pattern.search(line):
                yield f"{name}:{number}: {line.strip()[:80]}"


def long_lines():
    """engine lines of 100 columns, 120 at most, tabs of 4"""
    for path in engine_files() + paths("test/unit/*.[ch]", "test/fuzz/*.c"):
        for number, line in enumerate(text_of(path).split("\n"), 1):
            if len(line.expandtabs(4)) > 120:
                yield f"{short(path)}:{number}: {len(line.expandtabs(4))} columns"


def symbols(path, *options):
    done = subprocess.run(["nm", "-D", *options, path], capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.split()}


def module():
    path = os.path.join(ROOT, "tensorbank.so")
    if not os.path.exists(path):
        raise Skip("tensorbank.so is not built")
    return path


def only_our_exports():
    """tensorbank.so exports only what src/tensorbank.map lists"""
    for name in sorted(symbols(module(), "--defined-only")):
        if not re.match(r"(pg_finfo_)?tensorbank_|Pg_magic_func$|_PG_init$", name):
            yield f"tensorbank.so exports {name}"


def no_symbol_clash():
    """no library behind tensorbank.so shares a symbol with the server"""
    bindir = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True).stdout.strip()
    servers = [os.path.join(bindir, "postgres"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))]
    server = next((p for p in servers if os.path.exists(p)), None)
    if server is None:
        raise Skip("no server binary")
    exported = symbols(server, "--defined-only")
    needed = re.findall(r"NEEDED.*\[(.*?)\]", subprocess.run(["readelf", "-d", module()], capture_output=True, text=True).stdout)
    listed = subprocess.run(["ldd", module()], capture_output=True, text=True).stdout
    for library in needed:
        if re.match(r"(libc|libm|libpthread|libdl|ld-linux.*)\.so", library):
            continue
        where = re.search(re.escape(library) + r" => (\S+)", listed)
        for name in sorted(symbols(where.group(1), "--defined-only") & exported) if where else ():
            if name not in ("_init", "_fini"):
                yield f"{library} and the server both define {name}"


RULES = (include_arrows, version_only_in_compat, banned_functions, counted_memory, no_engine_globals, file_sizes, function_sizes,
         parameter_counts, long_lines, no_reserved_names, script_is_strict, documented, expected_outputs, no_unfinished,
         no_machine_paths, only_our_exports, no_symbol_clash)


def main():
    passed = failed = 0
    for rule in RULES:
        name = rule.__name__.replace("_", " ")
        try:
            found = list(rule())
        except Skip as reason:
            print(f"SKIP {name}: {reason}")
            continue
        if found:
            failed += 1
            print(f"not ok {name}: {rule.__doc__}")
            print("\n".join(f"    {problem}" for problem in found[:200]))
        else:
            passed += 1
            print(f"ok {name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
