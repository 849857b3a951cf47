// Calls methods of the interoperability server by grpc-web, the client of the project gRPC for browsers, in its text form and
// in its binary one. Messages are written by hand: the client takes any function for that.
//
// Arguments: the folder that holds its node_modules, the URL of the proxy.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, url] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
globalThis.XMLHttpRequest = require("xhr2");
const { GrpcWebClientBase, MethodDescriptor, MethodType } = require("grpc-web");

// A message whose fields are numbers or bytes, by their numbers (Protocol Buffers, "Encoding").
function written(fields) {
  const bytes = [];
  const varint = (number) => {
    for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
    bytes.push(number);
  };
  for (const [field, value] of fields) {
    if (typeof value === "number") {
      varint(field * 8);
      varint(value);
    } else {
      varint(field * 8 + 2);
      varint(value.length);
      bytes.push(...value);
    }
  }
  return Uint8Array.from(bytes);
}

// How many bytes of a payload are in a response: field 2 of field 1.
function payload(bytes) {
  let at = 0;
  const varint = () => {
    let [number, shift] = [0, 0];
    for (;;) {
      const byte = bytes[at++];
      number += (byte & 127) * 2 ** shift;
      shift += 7;
      if (byte < 128) return number;
    }
  };
  if (bytes.length === 0) return 0;
  assert.equal(bytes[at++], 10);
  varint();
  assert.equal(bytes[at++], 18);
  const length = varint();
  assert.equal(bytes.length, at + length);
  return length;
}

const method = (name, type) =>
  new MethodDescriptor(`/grpc.testing.TestService/${name}`, type, Object, Object, (fields) => written(fields), payload);
const status = (code, message) => [7, written([[1, code], [2, Buffer.from(message)]])];

function call(client, name, fields, metadata = {}) {
  return new Promise((resolve, reject) => {
    const stream = client.rpcCall(url + `/grpc.testing.TestService/${name}`, fields, metadata,
      method(name, MethodType.UNARY), (error, response) => (error ? reject(error) : resolve({ response, trailers })));
    let trailers = {};
    stream.on("status", (status) => (trailers = status.metadata));
  });
}

function list(client, fields, name = "StreamingOutputCall") {
  return new Promise((resolve, reject) => {
    const stream = client.serverStreaming(url + `/grpc.testing.TestService/${name}`, fields, {},
      method(name, MethodType.SERVER_STREAMING));
    const got = [];
    stream.on("data", (response) => got.push(response));
    stream.on("error", reject);
    stream.on("end", () => resolve(got));
  });
}

for (const format of ["text", "binary"]) {
  const client = new GrpcWebClientBase({ format });
  assert.equal((await call(client, "EmptyCall", [])).response, 0);
  for (const size of [1, 2, 3, 1000, 314159]) {
    assert.equal((await call(client, "UnaryCall", [[2, size], [3, written([[2, new Uint8Array(271)]])]])).response, size);
  }
  const metadata = { "x-grpc-test-echo-initial": "initial", "x-grpc-test-echo-trailing-bin": "q6ur" };
  const { trailers } = await call(client, "UnaryCall", [[2, 1]], metadata);
  assert.equal(trailers["x-grpc-test-echo-trailing-bin"], "q6ur");
  for (const [code, message] of [[2, "test status message"], [14, "\t\ntest with whitespace\r\nand Unicode ☺ and non-BMP 😈\t\n"]]) {
    await assert.rejects(call(client, "UnaryCall", [status(code, message)]), (error) => {
      assert.equal(error.code, code);
      assert.equal(error.message.trim(), message.trim());
      return true;
    });
  }
  await assert.rejects(call(client, "UnimplementedCall", []), { code: 12 });
  if (format === "text") {
    // The client takes streams as text alone.
    const sizes = [31415, 9, 2653, 58979];
    const parameters = sizes.map((size) => [2, written([[1, size], [2, 20_000]])]);
    assert.deepEqual(await list(client, parameters), sizes);
    await assert.rejects(list(client, [], "UnimplementedCall"), { code: 12 });
  }
}
