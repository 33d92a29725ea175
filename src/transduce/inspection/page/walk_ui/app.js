// The state of the page: what is chosen, what was changed, and all numbers for it.
//
//   const app = new Walk(data, draw)      draw(app): called after every change
//   app.choose({layer: 1})                choices: station, stack ("encoder", "decoder", "memory"), part (a
//                                         sub-layer), projection, layer, head, source, target, key, dims…
//   app.change({scale: false})            options of the forward pass
//   app.record, app.plain                 all numbers, with the options and without them
//   app.attention, app.query, app.keys    the chosen attention; its query's index; the names of its keys
//   app.address(), app.follow(hash)       the choices as the page's address

const STACKS = ["encoder", "decoder", "memory"];
const PARTS = { encoder: ["selfAttention", "feedForward"], decoder: ["selfAttention", "memoryAttention", "feedForward"] };
const MOST_SOURCE = 256;

class Walk {
  constructor(data, draw) {
    Object.assign(this, { data, draw, quiz: false, solved: false, problem: null });
    this.model = new WalkModel(data);
    this.tokenizers = pageTokenizers(data);
    this.check = checkReference(this.model, data);
    this.options = walkOptions();
    this.search = { beam: data.search.beam, alpha: data.search.alpha, step: 1 };
    this.chosen = {
      station: "text", stack: "encoder", part: "selfAttention", projection: "q",
      layer: 0, head: 0, source: 0, target: 0, key: 0, model: 0, width: 0, inner: 0,
    }; // prettier-ignore
    const { source, target, sourceIds, inputIds, targetIds } = data.sentence;
    this.sentence = { source, target, sourceIds, inputIds, targetIds, isOriginal: true };
    this.compute();
  }

  get canChange() {
    return this.model.computes;
  }

  get isChanged() {
    const { positions, scale, mask, silenced } = this.options;
    return !positions || !scale || !mask || silenced.size > 0;
  }

  compute() {
    const { sourceIds, inputIds } = this.sentence;
    this.plain = forward(this.model, sourceIds, inputIds);
    this.record = this.isChanged ? forward(this.model, sourceIds, inputIds, this.options) : this.plain;
  }

  // A new source: the page cuts it into tokens, translates it, and follows that translation.
  read(text) {
    this.problem = null;
    const sourceIds = encodeSource(this.data, this.tokenizers.source, text);
    const { sourcePrefix, sourceSuffix, targetPrefix } = this.data.frame;
    const limit = Math.min(MOST_SOURCE, this.data.config.maxLength ?? MOST_SOURCE);
    if (sourceIds.length <= sourcePrefix.length + sourceSuffix.length) this.problem = t("empty");
    else if (sourceIds.length > limit) this.problem = t("tooLong", { n: sourceIds.length, limit });
    if (this.problem) return this.draw(this);
    const { hypotheses } = this.beamSearch(sourceIds, this.data.search, {});
    if (!hypotheses.length) {
      this.problem = t("noTranslation");
      return this.draw(this);
    }
    const [{ tokens, ended }] = hypotheses;
    const { bos, eos } = this.model.vocabulary;
    const targetIds = [...targetPrefix, ...tokens, ...(ended ? [eos] : [])];
    const target = this.tokenizers.target?.decode(tokens) ?? tokens.map((id) => this.name("target", id)).join(" ");
    this.sentence = {
      source: text, target, sourceIds, inputIds: [bos, ...targetIds.slice(0, -1)], targetIds,
      isOriginal: text === this.data.sentence.source,
    }; // prettier-ignore
    this.search.step = 1;
    this.compute();
    this.choose({});
  }

  beamSearch(sourceIds, { beam, alpha }, options) {
    const { search, frame } = this.data;
    const settings = { ...search, beam, alpha, limit: targetLimit(search, sourceIds.length), prefix: frame.targetPrefix };
    return beamSearch(this.model, encode(this.model, sourceIds, options), settings, options);
  }

  choose(changes) {
    const before = this.chosen.station;
    Object.assign(this.chosen, changes);
    const { chosen } = this;
    const { config } = this.data;
    const within = (name, size) => {
      const value = Math.trunc(chosen[name]);
      chosen[name] = Number.isFinite(value) ? Math.max(0, Math.min(size - 1, value)) : 0;
    };
    if (!STACKS.includes(chosen.stack)) chosen.stack = "encoder";
    if (!this.parts.includes(chosen.part)) chosen.part = "selfAttention";
    within("layer", chosen.stack === "encoder" ? config.encoderLayers : config.decoderLayers);
    within("head", config.heads);
    within("source", this.sentence.sourceIds.length);
    within("target", this.sentence.inputIds.length);
    within("key", this.keyNames.length);
    within("model", config.dModel);
    within("width", Math.max(config.dK, config.dV));
    within("inner", config.dFf);
    this.solved = false;
    this.draw(this, before !== chosen.station);
  }

  change(options) {
    Object.assign(this.options, options);
    this.compute();
    this.choose({});
  }

  reset() {
    this.change({ positions: true, scale: true, mask: true, silenced: new Set() });
  }

  name(side, id) {
    const { names, stored } = this.data;
    const place = stored && side === "target" ? stored.columns.indexOf(id) : -1;
    return names[side][id] ?? (place >= 0 ? stored.columnNames[place] : `#${id}`);
  }

  names(side) {
    const ids = side === "source" ? this.sentence.sourceIds : this.sentence.inputIds;
    return ids.map((id) => this.name(side, id));
  }

  get side() {
    return this.chosen.stack === "encoder" ? "source" : "target";
  }

  get query() {
    return this.chosen[this.side];
  }

  get keyNames() {
    return this.names(this.chosen.stack === "decoder" ? "target" : "source");
  }

  get parts() {
    return PARTS[this.side === "source" ? "encoder" : "decoder"];
  }

  layerOf(record) {
    return record[this.side === "source" ? "encoder" : "decoder"][this.chosen.layer];
  }

  get sublayer() {
    return this.layerOf(this.record)[this.chosen.part];
  }

  attentionOf(record) {
    return this.layerOf(record)[this.chosen.stack === "memory" ? "memoryAttention" : "selfAttention"];
  }

  get attention() {
    return this.attentionOf(this.record).attention;
  }

  address() {
    const { station, stack, layer, head, source, target, key } = this.chosen;
    return `#${station}/${stack}/${layer + 1}/${head + 1}/${source + 1}/${target + 1}/${key + 1}`;
  }

  follow(hash) {
    const [station, stack, ...numbers] = decodeURIComponent(hash.replace(/^#/, "")).split("/");
    const changes = { station: STATIONS.some(({ id }) => id === station) ? station : this.chosen.station };
    if (STACKS.includes(stack)) changes.stack = stack;
    ["layer", "head", "source", "target", "key"].forEach((name, i) => {
      if (/^\d+$/.test(numbers[i] ?? "")) changes[name] = Number(numbers[i]) - 1;
    });
    this.choose(changes);
  }
}
