package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// long is how many bytes of a text are said as they are; of more it is a digest.
const long = 1000

// value is what a value is, for test/clients/consumers.pl: its kind (s text, b bytes,
// o truth value, i integer, d double, T time, n nothing, a list, m map), its type, itself.
type value struct {
	Kind string `json:"t"`
	Type string `json:"as"`
	V    any    `json:"v"`
}

type contents struct {
	Type string `json:"as"`
	Size int    `json:"size"`
	Sum  string `json:"sha256"`
}

func digest(octets []byte) string {
	sum := sha256.Sum256(octets)
	return hex.EncodeToString(sum[:])
}

func text(s string) string {
	if len(s) > long {
		return digest([]byte(s))
	}
	return s
}

func mapped(table amqp.Table) map[string]value {
	all := map[string]value{}
	for name, v := range table {
		all[name] = typed(v)
	}
	return all
}

func listed(array []any) []value {
	all := []value{}
	for _, v := range array {
		all = append(all, typed(v))
	}
	return all
}

func typed(v any) value {
	is := value{Type: fmt.Sprintf("%T", v)}
	switch v := v.(type) {
	case nil:
		is.Kind = "n"
	case bool:
		is.Kind, is.V = "o", v
	case int8, int16, int32, int64, int, uint8, uint16, uint32:
		is.Kind, is.V = "i", fmt.Sprint(v)
	case float64:
		is.Kind, is.V = "d", fmt.Sprintf("%016x", math.Float64bits(v))
	case string:
		is.Kind, is.V = "s", text(v)
	case []byte:
		is.Kind, is.V = "b", hex.EncodeToString(v)
	case time.Time:
		is.Kind, is.V = "T", strconv.FormatInt(v.Unix(), 10)
	case []any:
		is.Kind, is.V = "a", listed(v)
	case amqp.Table:
		is.Kind, is.V = "m", mapped(v)
	default:
		panic(is.Type)
	}
	return is
}
