class Order < ActiveRecord::Base
end

# [model]
class Message < ActiveRecord::Base
  self.table_name = "outbox_new"
  self.primary_key = "id"
end

# insert_all! looks for the index of a primary key, which a view does not have.
class MessageBatch < ActiveRecord::Base
  self.table_name = "outbox_new"
end
# [/model]
