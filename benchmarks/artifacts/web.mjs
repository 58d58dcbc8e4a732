/* Times a model in WebAssembly beside onnxruntime-web, in turns in this process; for web.py.

   node web.mjs MODEL.mjs MODEL.wasm MODEL.onnx INPUTS.json ROUNDS PACKAGES

   PACKAGES: the folder in which `npm install onnxruntime-web` was run. Prints a line of JSON. */
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [, , code, library, source, description, rounds, packages] = process.argv;
const JAVASCRIPT = {float32: Float32Array, float64: Float64Array, int64: BigInt64Array,
    int32: Int32Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
    float16: Uint16Array};
const require = createRequire(pathToFileURL(`${packages}/`));
const runtime = await import(pathToFileURL(require.resolve("onnxruntime-web")));
const theirs = runtime.default?.InferenceSession ? runtime.default : runtime;
theirs.env.wasm.numThreads = 1;
theirs.env.logLevel = "error";

const inputs = JSON.parse(readFileSync(description)).map(({name, file, dtype, shape}) => {
    const bytes = readFileSync(file);
    const data = new JAVASCRIPT[dtype](new Uint8Array(bytes).buffer);
    return {name, dtype, shape, data};
});
const {Model} = await import(pathToFileURL(code));
const model = await Model.load(readFileSync(library));
const session = await theirs.InferenceSession.create(
    readFileSync(source), {executionProviders: ["wasm"], graphOptimizationLevel: "all"});
const given = Object.fromEntries(inputs.map(({name, data, shape}) => [name, {data, shape}]));
const feeds = Object.fromEntries(inputs.map(
    ({name, dtype, data, shape}) => [name, new theirs.Tensor(dtype, data, shape)]));
const ways = {ours: async () => model.run(given), theirs: () => session.run(feeds)};

/* Functions are compiled again while they run: calls before the first round give V8 the time. */
const found = {};
for (const [way, call] of Object.entries(ways)) {
    const until = performance.now() + 3000;
    for (let k = 0; k < 5 || performance.now() < until; k++) found[way] = await call();
}
const times = {ours: [], theirs: []};
for (let round = 0; round < Number(rounds); round++) {
    for (const [way, call] of Object.entries(ways)) {
        const started = process.cpuUsage();
        await call();
        const {user, system} = process.cpuUsage(started);
        times[way].push((user + system) / 1e3);
    }
}
let difference = 0;
for (const name of session.outputNames) {
    const a = found.ours[name].data, b = found.theirs[name].data;
    if (a.length !== b.length) throw new Error(`${name}: ${a.length} and ${b.length} elements`);
    const top = b.reduce((most, x) => Math.max(most, Math.abs(Number(x))), 0);
    for (let k = 0; k < a.length; k++)
        difference = Math.max(difference, Math.abs(Number(a[k]) - Number(b[k])) / (top || 1));
}
console.log(JSON.stringify({difference, times, version: theirs.env.versions.web}));
process.exit(0);
