"""SQL is made when a plan is, not when a view is: what changes in the code that writes it reaches views that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.catalog.catalog import Catalog

VIEW = "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t WHERE x > 0 GROUP BY g"
# a release in which a comparison with > is written another way round
NEWER = """
import sys
from viewkeeper.codegen import expression_sql
old = expression_sql.emit
def emit(expression, *more):
    return f"(/* newer */ {old(expression, *more)})"
expression_sql.emit = emit
for module in list(sys.modules.values()):
    if getattr(module, "emit", None) is old:
        module.emit = emit
import viewkeeper as vk
from viewkeeper.plan import aggregate_layout, aggregate_nodes, lower, row_sql
for module in (aggregate_layout, aggregate_nodes, lower, row_sql):
    module.emit = emit
from tests.support.running import keep_up
from viewkeeper.plan.planner import physical_plan
db = vk.connect(sys.argv[1])
(node,) = physical_plan(db.catalog()).nodes
print(str(node).count("newer"), node.table)
db.table("t").put("d", {"g": "q", "x": 4})
keep_up(db)
print(list(db.view("v").scan()))
"""


def test_a_changed_emitter_reaches_a_view_that_exists_and_keeps_what_it_holds(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        db.table("t").put_many([{"k": k, "g": g, "x": x} for k, g, x in (("a", "p", 1), ("b", "p", 2), ("c", "q", -1))])
        keep_up(db)
        table, filled = db.catalog().view("v").node.table, db.store.read_epoch_record().filled
    done = subprocess.run([sys.executable, "-c", NEWER, url], capture_output=True, text=True, check=True)
    made, found = done.stdout.splitlines()

    assert int(made.split()[0]) > 0 and int(made.split()[1]) == table
    assert found == "[{'g': 'p', 'n': 2, 's': 3}, {'g': 'q', 'n': 1, 's': 4}]"
    with vk.connect(url) as db:
        assert db.store.read_epoch_record().filled == filled  # and it was not filled anew


def test_the_catalog_holds_no_sql_but_the_users(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        db.execute("CREATE MATERIALIZED VIEW j AS SELECT a.k, b.x FROM t a LEFT JOIN t b ON a.g = b.k AND a.x < b.x")
        stored = str(db.store.read_catalog())
        texts = [view.text for view in db.catalog().views]

    assert Catalog.from_json({}).nodes == ()
    for text in texts:
        stored = stored.replace(text, "")
    assert "SELECT" not in stored
