<?php
/*
 * Jobs of a queue, as the worker of Laravel runs them.
 *
 *     main.php PORT QUEUE N    one line of JSON for each: what the handler got, what the job says of itself
 *     main.php --check         whether the libraries are there
 *
 * Worker, job and container are Laravel's (illuminate/queue); the job's messages come by php-amqplib. The
 * connector itself (vladimir-yuldashev/laravel-queue-rabbitmq) is in no distribution: RabbitJob has the three methods
 * that a connector must have, and reads the fields that this one writes.
 */

require_once 'Illuminate/Queue/autoload.php';
require_once 'Illuminate/Events/autoload.php';
require_once 'PhpAmqpLib/autoload.php';

use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Queue\Job as JobContract;
use Illuminate\Events\Dispatcher;
use Illuminate\Queue\Jobs\Job;
use Illuminate\Queue\QueueManager;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

final class RabbitJob extends Job implements JobContract
{
    public function __construct(Container $container, private AMQPMessage $message, string $queue)
    {
        $this->container = $container;
        $this->connectionName = 'rabbitmq';
        $this->queue = $queue;
    }

    public function getJobId()
    {
        return $this->payload()['id'] ?? null;
    }

    public function getRawBody()
    {
        return $this->message->getBody();
    }

    public function attempts()
    {
        $headers = $this->message->get_properties()['application_headers'] ?? null;

        return ($headers?->getNativeData()['laravel']['attempts'] ?? 0) + 1;
    }

    public function delete()
    {
        parent::delete();
        $this->message->ack();
    }
}

/** An application's handler of a "string job": class and method are in the message. */
final class OrderHandler
{
    public function fire(Job $job, $data)
    {
        $this->show('fire', $job, $data);
    }

    public function cancelled(Job $job, $data)
    {
        $this->show('cancelled', $job, $data);
    }

    private function show(string $method, Job $job, $data)
    {
        echo json_encode([
            'method' => $method,
            'data' => $data,
            'id' => $job->getJobId(),
            'uuid' => $job->uuid(),
            'name' => $job->resolveName(),
            'attempts' => $job->attempts(),
            'maxTries' => $job->maxTries(),
            'maxExceptions' => $job->maxExceptions(),
            'timeout' => $job->timeout(),
            'backoff' => $job->backoff(),
            'retryUntil' => $job->retryUntil(),
            'failOnTimeout' => $job->shouldFailOnTimeout(),
        ], JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR), "\n";
        $job->delete();
    }
}

final class Report implements ExceptionHandler
{
    public function report(Throwable $e)
    {
        throw $e;
    }

    public function shouldReport(Throwable $e)
    {
        return true;
    }

    public function render($request, Throwable $e)
    {
        throw $e;
    }

    public function renderForConsole($output, Throwable $e)
    {
        throw $e;
    }
}

if ($argv[1] === '--check') {
    exit(class_exists(Worker::class) && class_exists(Dispatcher::class) && class_exists(AMQPMessage::class) ? 0 : 1);
}
[, $port, $queue, $count] = $argv;
$container = new Container();
$worker = new Worker(new QueueManager($container), new Dispatcher($container), new Report(), fn () => false);
$connection = new AMQPStreamConnection('127.0.0.1', $port, 'guest', 'guest');
$channel = $connection->channel();
$channel->basic_consume($queue, callback: function (AMQPMessage $message) use ($worker, $container, $queue, &$count) {
    $worker->process('rabbitmq', new RabbitJob($container, $message, $queue), new WorkerOptions());
    $count--;
});
while ($count > 0) {
    $channel->wait(timeout: 60);
}
$channel->close();
$connection->close();
