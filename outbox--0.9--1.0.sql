/* outbox--0.9--1.0.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION outbox UPDATE TO '1.0'" to load this file. \quit

/*
 * What outbox--1.0.sql makes and outbox--0.9.sql did not.  Each change of the one
 * is a change of the other, in the same words and in the same order, so that an
 * updated extension is the same as a new one.
 *
 * As in outbox--1.0.sql, the schema is not in the path.
 */
SET LOCAL search_path = pg_catalog, pg_temp;
