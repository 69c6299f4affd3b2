# [model]
import datetime
import uuid

from sqlalchemy import FetchedValue, LargeBinary, Text, event
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


JSON = JSONB(none_as_null=True)


class OutboxMessage(Base):
    __tablename__ = 'outbox_new'
    __table_args__ = {'info': {'view': True}}
    __mapper_args__ = {'eager_defaults': True}      # what the database sets comes back by RETURNING

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, server_default=FetchedValue())
    route: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    created_at: Mapped[datetime.datetime] = mapped_column(server_default=FetchedValue())

    event_type: Mapped[str] = mapped_column(Text)
    aggregate_type: Mapped[str | None] = mapped_column(Text)
    aggregate_id: Mapped[str | None] = mapped_column(Text)
    payload: Mapped[dict | None] = mapped_column(JSON)
    body: Mapped[bytes | None] = mapped_column(LargeBinary)
    headers: Mapped[dict | None] = mapped_column(JSON)
    properties: Mapped[dict | None] = mapped_column(JSON)
    routing_key: Mapped[str | None] = mapped_column(Text)
    available_at: Mapped[datetime.datetime | None]
# [/model]


# [once]
@event.listens_for(OutboxMessage, 'before_insert')
def only_once(mapper, connection, message):
    """merge() finds no row in the view and would INSERT again what is published already."""
    if message.created_at is not None:
        raise ValueError('message %s was enqueued before' % message.id)
# [/once]


from sqlalchemy import BigInteger, Identity


class Order(Base):
    __tablename__ = 'orders'

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    customer: Mapped[str] = mapped_column(Text)
    total: Mapped[int]
