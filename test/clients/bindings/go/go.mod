module bindings

go 1.19

require (
	github.com/google/uuid v1.6.0
	github.com/jackc/pgx/v5 v5.5.5
	github.com/lib/pq v1.10.9
)
