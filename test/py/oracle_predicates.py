"""Random WHERE clauses over the columns of a table, with constants near the values that are there."""

import datetime
import decimal


class Column:
    def __init__(self, name, type_name, values):
        self.name = name
        self.type = type_name
        self.values = [v for v in values if v is not None]


def literal(value, type_name, random):
    """A constant as SQL text, in one of the types that people write."""
    if type_name == "boolean":
        return str(random.choice(["true", "false", "NULL::boolean"], p=[0.49, 0.49, 0.02]))
    if isinstance(value, datetime.datetime):
        form = random.choice(["timestamptz", "date", "timestamp", "text"], p=[0.4, 0.25, 0.2, 0.15])
        if form == "date":
            return f"date '{value:%Y-%m-%d}'"
        text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
        return f"timestamp '{text}'" if form == "timestamp" else f"'{text}+00'" + ("::timestamptz" if form == "timestamptz" else "")
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return f"'{str(value).replace('inf', 'Infinity')}'::float8"
        form = random.choice(["float8", "numeric", "plain", "float4", "int"], p=[0.4, 0.2, 0.2, 0.1, 0.1])
        if form == "int" and abs(value) < 2e9:
            return f"({int(value)})"
        if form == "float4" and 1e-30 < abs(value) < 1e30:
            return f"'{value!r}'::float4"
        if form == "numeric" and abs(value) < 1e30:
            return f"'{decimal.Decimal(value):f}'::numeric"
        return f"'{value!r}'::float8" if form != "plain" else f"'{value!r}'"
    value = int(value)
    form = random.choice(["plain", "numeric", "half", "float8", "int8"], p=[0.4, 0.2, 0.1, 0.2, 0.1])
    if form == "float8":
        return f"'{float(value)!r}'::float8"
    if form == "half":
        return f"({value} + 0.5)"
    if form == "numeric":
        return f"'{value}'::numeric"
    if form == "int8" and abs(value) < 2**63:
        return f"'{value}'::int8"
    return f"({value})"


def near(column, random):
    """A value from the column, or beside one, or far off."""
    if not column.values:
        return {"boolean": True, "timestamp with time zone": datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc),
                "bigint": 0, "numeric": 0}.get(column.type, 0.0)
    value = column.values[int(random.integers(0, len(column.values)))]
    dice = random.random()
    if isinstance(value, bool):
        return value
    if isinstance(value, datetime.datetime):
        return value + datetime.timedelta(seconds=int(random.choice([0, 0, 1, -1, 86400, -86400])))
    if isinstance(value, float):
        if dice < 0.06:
            return float(random.choice([float("nan"), float("inf"), float("-inf"), 1e300, -1e300]))
        if dice < 0.4 and abs(value) < 1e100:
            return value + float(random.choice([0.5, -0.5, 1.0, 1e-9, -3.0, 30.0]))
        return value
    value = int(value)
    if dice < 0.4:
        return value + int(random.choice([1, -1, 3, -10, 50]))
    return value


COMPARISONS = ("<", "<=", "=", "<>", ">=", ">")


def comparable(a, b):
    numbers = ("double precision", "bigint", "numeric")
    return a.type == b.type or (a.type in numbers and b.type in numbers)


def leaf(columns, random):
    column = columns[int(random.integers(0, len(columns)))]
    name = column.name

    def constant():
        return literal(near(column, random), column.type, random)

    op = str(random.choice(COMPARISONS))
    dice = random.random()
    if column.type == "boolean" and dice < 0.3:
        return str(random.choice([name, f"NOT {name}", f"{name} IS TRUE", f"{name} IS NOT TRUE", f"{name} = true"]))
    if dice < 0.06:
        return f"{name} IS {random.choice(['', 'NOT '])}NULL"
    if dice < 0.14:
        return f"{name} {random.choice(['', 'NOT '])}BETWEEN {constant()} AND {constant()}"
    if dice < 0.22 and column.type not in ("boolean",):
        cast = {"bigint": "::int8", "double precision": "::float8", "numeric": "::numeric"}.get(column.type, "::timestamptz")
        items = [f"{plain(near(column, random), column)}{cast}" for _ in range(int(random.integers(1, 5)))]
        if random.random() < 0.15:
            items.append("NULL")
        form = random.choice(["in", "not", "any", "all"])
        if form in ("in", "not"):
            return f"{name} {'NOT ' if form == 'not' else ''}IN ({', '.join(items)})"
        return f"{name} {op} {'ANY' if form == 'any' else 'ALL'} (ARRAY[{', '.join(items)}])"
    if dice < 0.32:
        others = [c for c in columns if c is not column and comparable(c, column)]
        if others:
            return f"{name} {op} {others[int(random.integers(0, len(others)))].name}"
    if dice < 0.45 and column.type == "double precision":
        others = [c for c in columns if c.type == "double precision"]
        other = others[int(random.integers(0, len(others)))]
        return str(random.choice([
            f"{name} - {other.name} {op} '{random.random() * 20!r}'::float8", f"{name} + {other.name} {op} {constant()}",
            f"{name} * 2 {op} {constant()}", f"({name} - {other.name}) * {other.name} {op} 10", f"-{name} {op} {constant()}",
            f"abs({name}) {op} 5", f"{name} / 3 {op} 1"]))
    if dice < 0.48:
        return f"{name} IS DISTINCT FROM {constant()}"
    if dice < 0.6:
        return f"{constant()} {op} {name}"
    return f"{name} {op} {constant()}"


def plain(value, column):
    """A constant in the column's own type, without its cast."""
    if isinstance(value, datetime.datetime):
        return f"'{value:%Y-%m-%d %H:%M:%S.%f}+00'"
    if column.type == "bigint":
        return f"'{max(min(int(value), 2**63 - 1), -(2**63))}'"
    return "'" + str(value).replace("inf", "Infinity") + "'"


def predicate(columns, random, depth=0):
    dice = random.random()
    if depth >= 3 or dice < (0.35 if depth == 0 else 0.55):
        return leaf(columns, random)
    if dice < 0.66:
        return f"NOT ({predicate(columns, random, depth + 1)})"
    op = " AND " if random.random() < 0.55 else " OR "
    return "(" + op.join(predicate(columns, random, depth + 1) for _ in range(int(random.integers(2, 4)))) + ")"
