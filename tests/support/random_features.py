"""What random views must contain, so that a run which lacks a part of the grammar is a failure.

In: nothing. Out: names of features, as the makers count them, and of events, as worlds do.
"""

from __future__ import annotations

FEATURES = tuple(
    feature.strip()
    for line in """
    FROM a table; FROM a view; FROM a WITH; subquery in FROM; subquery without a name; columns renamed by AS
    names without qualifiers; names in other letters; names in backticks; column without AS; *
    join; JOIN; INNER JOIN; LEFT JOIN; LEFT OUTER JOIN; RIGHT JOIN; FULL JOIN; FULL OUTER JOIN; CROSS JOIN; comma join
    LEFT SEMI JOIN; SEMI JOIN; LEFT ANTI JOIN; ANTI JOIN; self-join; join in parentheses; join in parentheses under a name
    join of three or more; join of three or more on one key; join on several columns; join of different types
    join on an expression; join with a further condition; outer join with a further condition
    USING; USING twice; USING in INNER JOIN; USING in LEFT JOIN; USING in RIGHT JOIN; USING in FULL JOIN
    USING in SEMI JOIN; USING in ANTI JOIN
    WITH; WITH in the place of a table; columns renamed by WITH
    UNION ALL; UNION; UNION DISTINCT; INTERSECT; INTERSECT DISTINCT; EXCEPT; EXCEPT DISTINCT; MINUS
    set operation in parentheses; set operations in a row; different set operations in a row
    IN subquery; NOT IN subquery; IN of several columns; IN grouped rows; IN an aggregate; IN the first rows
    IN a set operation; EXISTS; NOT EXISTS; untied EXISTS; tied subquery; subquery tied by more than an equality
    join in a subquery of WHERE
    WHERE; AND; OR; NOT; comparison; date as a string; IS NULL; IS TRUE; IN list; BETWEEN; LIKE; STARTSWITH
    GROUP BY; GROUP BY an expression; GROUP BY an alias; GROUP BY a place; aggregates without GROUP BY
    HAVING; HAVING of an alias; DISTINCT; DISTINCT over groups; expression over aggregates; FILTER
    COUNT(*); COUNT(x); COUNT(DISTINCT); COUNT(DISTINCT a, b); COUNT_IF; COUNT_IF with FILTER; MIN and MAX
    BOOL_AND and BOOL_OR; SUM of INT; SUM of BIGINT; SUM of DECIMAL; SUM of wide DECIMAL; SUM of DOUBLE
    AVG of INT; AVG of BIGINT; AVG of DECIMAL; AVG of DOUBLE
    ORDER BY with LIMIT; ORDER BY with LIMIT over a set operation; ORDER BY a place; ORDER BY what is not shown
    arithmetic; % and div; /; - and ABS; bits; ROUND; CASE; CASE of a value; COALESCE; NULLIF; GREATEST
    CAST of a number; CAST to STRING; LENGTH; CONCAT; string function; part of a date; date function
    rows set aside by an output; rows set aside by WHERE; rows set aside by a key; rows set aside by a group
    rows set aside by an aggregate; value of a group that fails
    """.strip().splitlines()
    for feature in line.split(";")
)
EVENTS = (
    "nodes=1",
    "nodes=2",
    "before_images=on",
    "before_images=off",
    "epoch here",
    "epoch by several managers",
    "epoch run twice",
    "views filled from rows",
    "views filled in several epochs",
    "column added",
    "view dropped",
)
