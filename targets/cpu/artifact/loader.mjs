/* MODEL: runs the model in MODEL.wasm. Written by Strata.

   const model = await Model.load("MODEL.wasm");         // a file, an address, or the bytes
   const {y} = model.run({x: {data: new Float32Array(6), shape: [2, 3]}});

   Types that JavaScript lacks, such as f16, are passed as the integers of their bits. */

export const ARRAYS = [null, Float32Array, Float64Array, Uint16Array, Uint16Array, Uint8Array, Int8Array,
    Int16Array, Int32Array, BigInt64Array, Uint8Array, Uint16Array, Uint32Array, BigUint64Array];
const DIMS = 16, TENSOR = 16 + 8 * DIMS;

/* What the C library of WebAssembly's systems may import. Models neither read nor write files. */
function imports(module, memory) {
    const found = {};
    for (const {module: space, name, kind} of WebAssembly.Module.imports(module)) {
        if (kind !== "function") continue;
        found[space] ??= {};
        found[space][name] = name === "clock_time_get"
            ? (_clock, _precision, address) => {
                const now = BigInt(Math.round(performance.now() * 1e6));
                new DataView(memory()).setBigUint64(address, now, true);
                return 0;
            } : () => 52; /* there is no such function */
    }
    return found;
}

/* What is in a file, outside browsers, or at an address. A path is relative to where the program was
   started, and an address to its page. */
async function contents(source) {
    const isFile = source instanceof URL ? source.protocol === "file:"
        : source.startsWith("file:") || !/^[a-z][a-z0-9+.-]+:/i.test(source);
    if (isFile && globalThis.process?.versions?.node) {
        const {readFile} = await import("node:fs/promises");
        return readFile(typeof source === "string" && source.startsWith("file:")
            ? new URL(source) : source);
    }
    const response = await fetch(source);
    if (!response.ok) throw new Error(`${source}: ${response.status} ${response.statusText}`);
    return response.arrayBuffer();
}

export class Model {
    /* From a file, from an address, or from the bytes. */
    static async load(source) {
        const isNamed = typeof source === "string" || source instanceof URL;
        const module = await WebAssembly.compile(isNamed ? await contents(source) : source);
        let instance = null;
        instance = await WebAssembly.instantiate(
            module, imports(module, () => instance.exports.memory.buffer));
        return new Model(instance.exports);
    }

    constructor(functions) {
        this.f = functions;
        this.f._initialize?.();
        this.inputs = this.#ports(this.f.MODEL_input_count(), this.f.MODEL_input);
        this.outputs = this.#ports(this.f.MODEL_output_count(), this.f.MODEL_output);
        const place = this.#allocate(4);
        const status = this.f.MODEL_create(0, place);
        if (status !== 0) throw new Error(this.#text(this.f.MODEL_error_text(status)));
        this.state = this.#view().getUint32(place, true);
        this.f.free(place);
    }

    #view() { return new DataView(this.f.memory.buffer); }

    #allocate(bytes) {
        const place = this.f.malloc(Math.max(bytes, 1));
        if (place === 0) throw new Error(`there is not enough memory for ${bytes} bytes`);
        return place;
    }

    #text(place) {
        const bytes = new Uint8Array(this.f.memory.buffer);
        return new TextDecoder().decode(bytes.slice(place, bytes.indexOf(0, place)));
    }

    #ports(count, ask) {
        return Array.from({length: count}, (_, k) => {
            const place = ask(k), view = this.#view();
            return {name: this.#text(view.getUint32(place, true)),
                type: this.#text(view.getUint32(place + 4, true)),
                dtype: view.getInt32(place + 8, true)};
        });
    }

    /* Runs the model on {name: {data, shape}}; outputs are of the same form. */
    run(given) {
        const memory = [];
        const allocate = (bytes) => {
            memory.push(this.#allocate(bytes));
            return memory[memory.length - 1];
        };
        try {
            const ins = allocate(TENSOR * (this.inputs.length + 1));
            const outs = allocate(TENSOR * (this.outputs.length + 1));
            this.inputs.forEach((port, k) => this.#pass(ins + TENSOR * k, port, given, allocate));
            new Uint8Array(this.f.memory.buffer, outs, TENSOR * this.outputs.length).fill(0);
            const status = this.f.MODEL_call(
                this.state, ins, this.inputs.length, outs, this.outputs.length);
            if (status !== 0) throw new Error(this.#text(this.f.MODEL_message(this.state)));
            return Object.fromEntries(this.outputs.map(
                (port, k) => [port.name, this.#fetched(outs + TENSOR * k, port)]));
        } finally {
            for (const place of memory) this.f.free(place);
        }
    }

    #pass(place, port, given, allocate) {
        if (given[port.name] === undefined) throw new Error(`there is no input '${port.name}'`);
        const {data, shape} = given[port.name];
        const count = shape.reduce((a, b) => a * b, 1);
        if (shape.length > DIMS || data.length !== count || !(data instanceof this.#array(port)))
            throw new Error(`input '${port.name}' must be a ${this.#array(port).name} of `
                + `${count} elements, ${port.type}`);
        const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
        const address = allocate(bytes.length + 64);
        const aligned = address + (64 - address % 64);
        new Uint8Array(this.f.memory.buffer).set(bytes, aligned);
        const view = this.#view();
        [aligned, bytes.length, port.dtype, shape.length].forEach(
            (word, k) => view.setUint32(place + 4 * k, word, true));
        shape.forEach((size, d) => view.setBigInt64(place + 16 + 8 * d, BigInt(size), true));
    }

    #fetched(place, port) {
        const view = this.#view();
        const shape = Array.from({length: view.getInt32(place + 12, true)},
            (_, d) => Number(view.getBigInt64(place + 16 + 8 * d, true)));
        const kind = this.#array(port), count = shape.reduce((a, b) => a * b, 1);
        const start = view.getUint32(place, true);
        const bytes = this.f.memory.buffer.slice(start, start + count * kind.BYTES_PER_ELEMENT);
        return {data: new kind(bytes), shape};
    }

    #array(port) { return ARRAYS[port.dtype] ?? Uint8Array; }

    /* Gives the memory of the state back. */
    close() {
        this.f.MODEL_destroy(this.state);
        this.state = 0;
    }
}
