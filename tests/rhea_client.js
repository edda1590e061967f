// A client of AMQP 1.0 with rhea: sends, receives with every outcome, asks and answers. Prints what it saw as JSON.
const [directory, port] = process.argv.slice(2);
const rhea = require(directory + '/node_modules/rhea');
const container = rhea.create_container({ id: 'rhea' });
const seen = { accepted: 0, rejected: [], counts: [], bodies: [], drained: false, answer: null };
const connection = container.connect({ port: Number(port), host: '127.0.0.1', reconnect: false, username: 'anonymous' });

function fail(context) {
    const part = context.connection.error || (context.sender || context.receiver || {}).error;
    console.error(String(part && part.description || context.error || 'disconnected'));
    process.exit(1);
}
container.on('connection_error', fail);
container.on('disconnected', (context) => { if (!seen.done) fail(context); });

// 1. Send, and wait for the answers.
const sender = connection.open_sender('private$/orders');
const properties = { text: 'x', number: rhea.types.wrap_ulong(7), yes: true };
let sent = false;
sender.on('sendable', () => {
    if (sent) return;
    sent = true;
    for (let number = 0; number < 5; number++) {
        sender.send({ body: 'message ' + number, subject: 'label ' + number, durable: true, message_id: 'id-' + number,
                      correlation_id: 'c-' + number, application_properties: properties, ttl: 600000 });
    }
    sender.send({ body: rhea.message.data_section(Buffer.from('bytes')), durable: true });
    sender.send({ body: Buffer.alloc(4 * 1024 * 1024), durable: true });
});
sender.on('accepted', () => { seen.accepted++; check(); });
sender.on('rejected', (context) => { seen.rejected.push(context.delivery.remote_state.error.condition); check(); });
function check() {
    if (seen.accepted === 6 && seen.rejected.length === 1) receive();
}

// 2. Receive: the first is released, failed and rejected in turn, the others are accepted.
function receive() {
    const receiver = connection.open_receiver({ source: 'private$/orders', autoaccept: false, credit_window: 0 });
    receiver.add_credit(1);
    let turn = 0, left = 0;
    receiver.on('message', (context) => {
        const { delivery, message } = context;
        turn++;
        if (turn <= 3) {
            seen.counts.push(message.delivery_count || 0);
            if (turn === 1) delivery.release();
            if (turn === 2) delivery.modified({ delivery_failed: true });
            if (turn === 3) delivery.reject({ condition: 'app:no', description: 'not this one' });
            receiver.add_credit(turn === 3 ? 5 : 1);
            return;
        }
        seen.bodies.push(Buffer.isBuffer(message.body.content) ? message.body.content.toString() : message.body);
        if (String(message.message_id).startsWith('id-')) seen.last = message;
        delivery.accept();
        if (++left === 5) { receiver.drain = true; receiver.add_credit(10); }
    });
    receiver.on('receiver_drained', () => { seen.drained = true; receiver.close(); ask(); });
}

// 3. A request by a link without an address, and its reply to a dynamic node.
function ask() {
    const replies = connection.open_receiver({ source: { dynamic: true } });
    const server = connection.open_receiver('private$/orders');
    const anonymous = connection.open_sender({ target: {} });
    replies.on('receiver_open', () => {
        anonymous.send({ to: 'private$/orders', reply_to: replies.source.address, body: 'how much?', correlation_id: 'q' });
    });
    server.on('message', ({ message }) => {
        anonymous.send({ to: message.reply_to, body: message.body + ' 42', correlation_id: message.correlation_id });
    });
    replies.on('message', ({ message }) => {
        seen.answer = [message.body, message.correlation_id];
        seen.done = true;
        const last = seen.last;
        seen.last = { id: last.message_id, subject: last.subject, correlation: last.correlation_id, durable: last.durable,
                      properties: last.application_properties, ttl: last.ttl };
        console.log(JSON.stringify(seen));
        connection.close();
    });
}
