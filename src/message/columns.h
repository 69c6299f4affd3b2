/*-------------------------------------------------------------------------
 *
 * columns.h
 *		Columns of the table outbox, made of columns.def.
 *
 * COL_SEQ and the others are numbers of attributes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_COLUMNS_H
#define OUTBOX_COLUMNS_H

#include "columns.def"

/* The arguments, if columns.def says so of the column. */
#define OUTBOX_IF_ARCHIVED_KEPT(...)		__VA_ARGS__
#define OUTBOX_IF_ARCHIVED_BODY(...)		__VA_ARGS__
#define OUTBOX_IF_ARCHIVED_DROPPED(...)
#define OUTBOX_IF_METADATA_KEPT(...)		__VA_ARGS__
#define OUTBOX_IF_METADATA_BODY(...)
#define OUTBOX_IF_METADATA_DROPPED(...)
#define OUTBOX_IF_BODY_KEPT(...)
#define OUTBOX_IF_BODY_BODY(...)			__VA_ARGS__
#define OUTBOX_IF_BODY_DROPPED(...)
#define OUTBOX_IF_READ_LISTED(...)			__VA_ARGS__
#define OUTBOX_IF_READ_READ(...)			__VA_ARGS__
#define OUTBOX_IF_READ_UNREAD(...)
#define OUTBOX_IF_LISTED_LISTED(...)		__VA_ARGS__
#define OUTBOX_IF_LISTED_READ(...)
#define OUTBOX_IF_LISTED_UNREAD(...)
#define OUTBOX_IF_REQUIRED_NULLABLE(...)
#define OUTBOX_IF_REQUIRED_NOT_NULL(...)	__VA_ARGS__
#define OUTBOX_IF_REQUIRED_IDENTITY(...)	__VA_ARGS__
#define OUTBOX_IF_REQUIRED_DEFAULT(...)		__VA_ARGS__

#define OUTBOX_COLUMN_NUMBER(NAME, ...) COL_##NAME,
#define OUTBOX_COLUMN_ARCHIVED(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_ARCHIVED_##archive(+ 1)

enum
{
	COL_NONE,
	OUTBOX_MESSAGE_COLUMNS(OUTBOX_COLUMN_NUMBER, OUTBOX_COLUMN_NUMBER)
	COL_END,
	OUTBOX_COLUMNS = COL_END - 1,
	/* The first so many of them; the archive has published_at behind them. */
	OUTBOX_ARCHIVED_COLUMNS =
		0 OUTBOX_MESSAGE_COLUMNS(OUTBOX_COLUMN_ARCHIVED, OUTBOX_COLUMN_ARCHIVED)
};

typedef enum OutboxColumnNull
{
	OUTBOX_COLUMN_NULLABLE,
	OUTBOX_COLUMN_NOT_NULL,
	OUTBOX_COLUMN_IDENTITY,
	OUTBOX_COLUMN_DEFAULT
} OutboxColumnNull;

typedef enum OutboxSetBy
{
	OUTBOX_SET_BY_CONTENT,
	OUTBOX_SET_BY_APPLICATION,	/* the last one that every way in can set */
	OUTBOX_SET_BY_INSERT,
	OUTBOX_SET_BY_SERVER,
	OUTBOX_SET_BY_RELAY
} OutboxSetBy;

typedef struct OutboxColumn
{
	const char *name;
	OutboxColumnNull null;
	OutboxSetBy set_by;
} OutboxColumn;

/* That of column n is n - 1. */
extern const OutboxColumn outbox_columns[OUTBOX_COLUMNS];
extern const Oid outbox_column_types[OUTBOX_COLUMNS];

#endif							/* OUTBOX_COLUMNS_H */
