/*-------------------------------------------------------------------------
 *
 * columns.h
 *		Columns of the table outbox, in outbox--1.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_COLUMNS_H
#define OUTBOX_COLUMNS_H

#define COL_SEQ				1
#define COL_ID				2
#define COL_ROUTE			3
#define COL_EVENT_TYPE		4
#define COL_AGGREGATE_TYPE	5
#define COL_AGGREGATE_ID	6
#define COL_PAYLOAD			7
#define COL_BODY			8
#define COL_HEADERS			9
#define COL_PROPERTIES		10
#define COL_ROUTING_KEY		11
#define COL_CREATED_AT		12
#define COL_AVAILABLE_AT	13
#define COL_ATTEMPTS		14
#define COL_LAST_ERROR		15
#define COL_STATUS			16
#define COL_ORIGIN			17
#define COL_FAILED_AT		18
#define COL_EXTERNAL		19
#define COL_COUNTED			20
#define OUTBOX_COLUMNS		20

#endif							/* OUTBOX_COLUMNS_H */
