/*
 * Everything lives in schema tensorbank. It is created here, so that the script fails where somebody made the schema before: nothing of
 * theirs may lie in the path of what follows.
 */
CREATE SCHEMA tensorbank;
GRANT USAGE ON SCHEMA tensorbank TO PUBLIC;
