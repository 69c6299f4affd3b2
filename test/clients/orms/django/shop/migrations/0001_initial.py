from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel('Order', [
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('customer', models.TextField()),
            ('total', models.IntegerField()),
        ], options={'db_table': 'orders', 'managed': False}),
        migrations.CreateModel('Invoice', [
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('customer', models.TextField()),
        ], options={'db_table': 'invoices'}),
    ]
