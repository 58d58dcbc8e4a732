/* As feed.c, for a model in WebAssembly: node feed.mjs model.mjs model.wasm < inputs > outputs. */
import {readFileSync, writeSync} from "node:fs";
import {pathToFileURL} from "node:url";

const [, , code, library] = process.argv;
const {Model, ARRAYS} = await import(pathToFileURL(code));
const model = await Model.load(readFileSync(library));
const file = readFileSync(0), given = {};
let at = 0;
const number = (wide) => {
    const value = wide ? Number(file.readBigInt64LE(at)) : file.readInt32LE(at);
    at += wide ? 8 : 4;
    return value;
};
for (const {name} of model.inputs) {
    const kind = ARRAYS[number(false)] ?? Uint8Array, rank = number(false);
    const shape = Array.from({length: rank}, () => number(true)), bytes = number(true);
    const copy = new Uint8Array(file.subarray(at, at + bytes)).buffer;
    given[name] = {data: new kind(copy), shape};
    at += bytes;
}
model.run(given);
const found = model.run(given);
const write = (bytes) => {
    for (let done = 0; done < bytes.length;) done += writeSync(1, bytes, done);
};
for (const {name, dtype} of model.outputs) {
    const {data, shape} = found[name];
    const head = Buffer.alloc(16 + 8 * shape.length);
    head.writeInt32LE(dtype, 0);
    head.writeInt32LE(shape.length, 4);
    shape.forEach((size, d) => head.writeBigInt64LE(BigInt(size), 8 + 8 * d));
    head.writeBigInt64LE(BigInt(data.byteLength), 8 + 8 * shape.length);
    write(head);
    write(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
}
