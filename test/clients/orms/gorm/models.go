package main

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Order is a business row.
type Order struct {
	ID       int64
	Customer string `gorm:"type:text;not null"`
	Total    int    `gorm:"type:integer;not null"`
}

// [model]

// Message is a row to be inserted: what is not set is the database's default.
type Message struct {
	ID            uuid.UUID `gorm:"type:uuid;primaryKey;default:(-)"`
	Route         string    `gorm:"default:(-)"`
	EventType     string
	AggregateType string `gorm:"default:(-)"`
	AggregateID   string `gorm:"default:(-)"`
	Payload       JSON   `gorm:"type:jsonb"`
	Body          []byte
	Headers       JSON      `gorm:"type:jsonb"`
	Properties    JSON      `gorm:"type:jsonb"`
	RoutingKey    string    `gorm:"default:(-)"`
	CreatedAt     time.Time `gorm:"autoCreateTime:false;default:(-)"`
	AvailableAt   *time.Time

	enqueued bool
}

func (Message) TableName() string { return "outbox_new" }

// JSON is bound as text, which an INSERT assigns.
type JSON map[string]any

func (j JSON) Value() (driver.Value, error) {
	if j == nil {
		return nil, nil
	}
	text, err := json.Marshal(j)
	return string(text), err
}

// [/model]

// [once]

var ErrEnqueued = errors.New("the message has been enqueued already")

func (m *Message) BeforeCreate(*gorm.DB) error {
	if m.enqueued {
		return ErrEnqueued
	}
	return nil
}

func (m *Message) AfterCreate(*gorm.DB) error {
	m.enqueued = true
	return nil
}

// Save() is an UPDATE first, and then an INSERT.
func (m *Message) BeforeUpdate(*gorm.DB) error { return ErrEnqueued }
func (m *Message) BeforeDelete(*gorm.DB) error { return ErrEnqueued }

// [/once]

// PlainMessage is one without the hooks.
type PlainMessage struct {
	ID            uuid.UUID `gorm:"type:uuid;primaryKey;default:(-)"`
	EventType     string
	AggregateType string
	AggregateID   string
	Payload       JSON `gorm:"type:jsonb"`
}

func (PlainMessage) TableName() string { return "outbox_new" }
