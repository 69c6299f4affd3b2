module migrations

go 1.22

require (
	github.com/ThreeDotsLabs/watermill v1.2.0
	github.com/ThreeDotsLabs/watermill-sql/v3 v3.1.0
	github.com/lib/pq v1.10.9
)
