# Migrations, and dumps of the schema.

class CreateInvoices < ActiveRecord::Migration[6.1]
  def change
    create_table(:invoices) { |t| t.bigint :order_id, null: false }
  end
end

class CreateOutbox < ActiveRecord::Migration[6.1]
  def up
    execute "CREATE SCHEMA outbox"
    execute "CREATE EXTENSION outbox SCHEMA outbox"
  end

  def down
    execute "DROP EXTENSION outbox"
    execute "DROP SCHEMA outbox"
  end
end

def migrate_up
  ActiveRecord::Migration.suppress_messages { CreateInvoices.new.migrate(:up) }
  {}
end

def migrate_down
  ActiveRecord::Migration.suppress_messages { CreateInvoices.new.migrate(:down) }
  {}
end

def extension
  ActiveRecord::Migration.suppress_messages { CreateOutbox.new.migrate(:up) }
  {}
end

# schema.rb as db:schema:dump writes it.
def schema_rb
  out = StringIO.new
  ActiveRecord::SchemaDumper.dump(ActiveRecord::Base.connection, out)
  out.string
end

def ours(schema)
  schema.scan(/^ +(?:create_table|enable_extension|add_foreign_key) "(\w*outbox\w*)"/).flatten
end

# A dump is what db:schema:load makes again: what of ours is in it.
def diff
  { wants: ours(schema_rb).map { |name| "schema.rb makes #{name}" }, says: "**makes our tables**" }
end

def diff_mended
  ActiveRecord::SchemaDumper.ignore_tables = [/\A(?:outbox\.)?outbox/]
  { wants: ours(schema_rb).reject { |name| name == "outbox" }.map { |name| "schema.rb makes #{name}" } }
end

# structure.sql is pg_dump's, which knows what belongs to an extension. Who dumps must be allowed
# to read our sequences: here a superuser.
def dump
  expect("schema.rb", true, ours(schema_rb).size > 5)
  text = Dir.mktmpdir do |directory|
    file = File.join(directory, "structure.sql")
    config = ActiveRecord::Base.connection_db_config.configuration_hash.merge(username: ENV["SUPERUSER"])
    ActiveRecord::Tasks::DatabaseTasks.structure_dump(config, file)
    File.read(file)
  end
  expect("tables in structure.sql", [], text.scan(/CREATE (?:TABLE|VIEW) \S*outbox\S*/))
  expect("extension in structure.sql", 1, text.scan(/CREATE EXTENSION .*outbox WITH SCHEMA #{ENV["OUTBOX_SCHEMA"]}/).size)
  { says: "structure.sql: nothing of ours" }
end
