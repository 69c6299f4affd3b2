# [include]
from alembic import context

from models import Base


def include_object(object, name, type_, reflected, compare_to):
    """Leaves alone what belongs to the extension, and views that are mapped as tables."""
    if type_ == 'table':
        return not object.info.get('view') and not (reflected and name.startswith('outbox'))
    return True
# [/include]


def run():
    connection = context.config.attributes['connection']
    # [configure]
    context.configure(connection=connection, target_metadata=Base.metadata, include_object=include_object)
    # [/configure]
    with context.begin_transaction():
        context.run_migrations()


run()
