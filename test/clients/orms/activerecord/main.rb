# Each operation of the matrix by ActiveRecord, of Debian's package.
# Written for 6.1.7

require "active_record"
require "json"
require "securerandom"
require "stringio"
require "tmpdir"
require_relative "models"
require_relative "migrations"

OPERATION = ARGV[0]
EVENT_TYPE = "order.#{OPERATION}"

# The SQLSTATE of what it is refused with, "client" without one, or nil.
def refused
  yield
  nil
rescue ActiveRecord::StatementInvalid => e
  warn e.message
  e.cause.respond_to?(:result) && e.cause.result ? e.cause.result.error_field(PG::Result::PG_DIAG_SQLSTATE) : "client"
rescue ActiveRecord::ActiveRecordError, ArgumentError => e
  warn "#{e.class}: #{e.message}"
  "client"
end

def expect(what, expected, is)
  raise "#{what}: #{is.inspect}, and not #{expected.inspect}" unless is == expected
end

def place_order
  Order.create!(customer: OPERATION, total: 42)
end

def message(order, payload, **more)
  Message.new(event_type: EVENT_TYPE, aggregate_type: "order", aggregate_id: order.id, payload: payload, **more)
end

def placed
  ActiveRecord::Base.transaction do
    order = place_order
    message(order, { order: order.id }).tap(&:save!)
  end
end

# --- messages

def map
  message = Message.create!(
    route: "default", event_type: EVENT_TYPE, aggregate_type: "customer", aggregate_id: "42",
    payload: { n: 42, name: "Zoë", nothing: nil }, headers: { tenant: "a\\b", "x-retries": 3 }, properties: { priority: 5 },
    routing_key: "a.key", created_at: "2026-01-02T03:04:05Z", available_at: "2040-01-02T03:04:05Z")
  expect("columns", [], Message.column_names - %w[id route event_type aggregate_type aggregate_id payload body headers properties routing_key created_at available_at])
  { ids: [message.id] }
end

def insert
  # [insert]
  message = ActiveRecord::Base.transaction do
    order = Order.create!(customer: "Zoë", total: 42)
    Message.create!(event_type: EVENT_TYPE, aggregate_type: "order", aggregate_id: order.id,
                    payload: { order: order.id })
  end
  # [/insert]
  { ids: [message.id] }
end

def function
  id = ActiveRecord::Base.transaction do
    order = place_order
    ActiveRecord::Base.connection.select_value(
      ActiveRecord::Base.sanitize_sql(["SELECT outbox_enqueue(?, ?, 'order', ?)",
                                       EVENT_TYPE, { order: order.id }.to_json, order.id.to_s]))
  end
  { ids: [id] }
end

def own_id
  id = SecureRandom.uuid
  ActiveRecord::Base.transaction do
    order = place_order
    message(order, { order: order.id }, id: id).save!
  end
  { ids: [id] }
end

def bytes
  { ids: [Message.create!(event_type: EVENT_TYPE, body: (0..255).to_a.pack("C*")).id] }
end

def batch
  ids = ActiveRecord::Base.transaction do
    order = place_order
    messages = (0...100).map do |n|
      { event_type: EVENT_TYPE, aggregate_type: "order", aggregate_id: order.id, payload: { n: n } }
    end
    MessageBatch.insert_all!(messages, returning: :id).rows.flatten
  end
  { ids: ids }
end

def rollback
  ActiveRecord::Base.transaction do
    placed
    raise ActiveRecord::Rollback
  end
  {}
end

def savepoint
  ids = []
  ActiveRecord::Base.transaction do
    order = place_order
    (1..3).each do |n|
      ActiveRecord::Base.transaction(requires_new: true) do
        created = message(order, { n: n })
        created.save!
        raise ActiveRecord::Rollback if n == 2
        ids << created.id
      end
    end
  end
  { ids: ids }
end

# All ways to save it once more. Without a change save! has nothing to do.
def again(message)
  message.save!
  expect("insert!", "23505", refused { message.dup.tap { |copy| copy.id = message.id }.save! }) if OPERATION == "second_save"
  raise "upsert is not refused" unless refused { Message.upsert({ id: message.id, event_type: "order.again", payload: {} }) }
  message.payload = { again: true }
  raise "save! with a change is not refused" unless refused { message.save! }
end

def second_save
  message = placed
  again(message)
  { ids: [message.id] }
end

def second_save_gone
  message = placed
  state = ActiveRecord::Base.connection.select_value("SELECT outbox_wait('#{message.id}', '60 s')")
  expect("outbox_wait()", "published", state)
  again(message)
  { ids: [message.id] }
end

def update
  message = placed
  raise "update_all is not refused" unless refused { Message.update_all(event_type: "order.changed") }
  message.event_type = "order.changed"
  { ids: [message.id], error: refused { message.save! } }
end

def delete
  message = placed
  raise "delete_all is not refused" unless refused { Message.delete_all }
  raise "delete is not refused" unless refused { message.delete }
  { ids: [message.id], error: refused { message.destroy! } }
end

def pool
  ids = Queue.new
  threads = 4.times.map do
    Thread.new do
      ActiveRecord::Base.connection_pool.with_connection { 25.times { ids << placed.id } }
    end
  end
  threads.each(&:join)
  { ids: Array.new(ids.size) { ids.pop } }
end

# As use_transactional_tests does.
def tests
  connection = ActiveRecord::Base.connection
  connection.begin_transaction(joinable: false)
  message = placed
  expect("stored", 1, connection.select_value("SELECT count(*) FROM outbox WHERE id = '#{message.id}'"))
  connection.rollback_transaction
  { says: "rolled back" }
end

OPERATIONS = %w[map insert function own_id bytes batch rollback savepoint second_save second_save_gone update delete pool tests
                diff diff_mended dump migrate_up migrate_down extension].freeze
raise "no operation #{OPERATION}" unless OPERATIONS.include?(OPERATION)

ActiveRecord::Base.establish_connection(url: "#{ENV.fetch('DATABASE_URL')}&pool=4")
puts JSON.generate(send(OPERATION))
