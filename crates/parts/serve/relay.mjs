// Adds the key to what comes in, for programs that cannot send one. What they say of host and origin stays as it is, but for the
// relay's own name: relay.mjs PORT-OF-THE-SERVER KEY; prints its own port.
import http from 'node:http';

const [port, key] = process.argv.slice(2);
const relay = http.createServer((request, response) => {
  const ours = `${request.socket.localPort}`;
  const renamed = (text) => text?.replace(new RegExp(`^((?:http://)?(?:localhost|127\\.0\\.0\\.1|\\[::1\\])):${ours}$`), `$1:${port}`);
  const headers = { ...request.headers, authorization: `Bearer ${key}`, host: renamed(request.headers.host) };
  if (headers.origin) headers.origin = renamed(headers.origin);
  const { method, url: path } = request;
  const passed = http.request({ host: '127.0.0.1', port, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  passed.on('error', () => response.destroy());
  response.on('close', () => passed.destroy());
  request.pipe(passed);
});
relay.listen(0, '127.0.0.1', () => console.log(relay.address().port));
