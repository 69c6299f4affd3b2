from django.db import models


class Order(models.Model):
    customer = models.TextField()
    total = models.IntegerField()

    class Meta:
        db_table = 'orders'
        managed = False         # other tests share it


class Invoice(models.Model):
    customer = models.TextField()

    class Meta:
        db_table = 'invoices'
