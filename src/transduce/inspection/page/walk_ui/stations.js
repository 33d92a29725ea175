// The stations in the order of the walk.
//
// uses: which choices they need: "stack", "side" (encoder or decoder), "layer", "head", "token" (of the chosen
// side), "target" (a position of the decoder), "source"

const ATTENTION_CHOICES = ["stack", "layer", "head", "token"];
const STATIONS = [
  { id: "text", section: "5.1", uses: [], draw: stationText },
  { id: "embedding", section: "3.4, 3.5", uses: ["side", "token"], draw: stationEmbedding },
  { id: "norm", section: "3.1", uses: ["side", "layer", "token"], draw: stationNorm },
  { id: "qkv", section: "3.2.2", uses: ATTENTION_CHOICES, draw: stationProjections },
  { id: "scores", section: "3.2.1", uses: ATTENTION_CHOICES, draw: stationScores },
  { id: "scale", section: "3.2.1", uses: ATTENTION_CHOICES, draw: stationScale },
  { id: "softmax", section: "3.2.1, 3.2.3", uses: ATTENTION_CHOICES, draw: stationSoftmax },
  { id: "values", section: "3.2.1", uses: ATTENTION_CHOICES, draw: stationValues },
  { id: "heads", section: "3.2.2", uses: ["stack", "layer", "token"], draw: stationHeads },
  { id: "residual", section: "3.1", uses: ["side", "layer", "token"], draw: stationResidual },
  { id: "ffn", section: "3.3", uses: ["side", "layer", "token"], draw: stationFeedForward },
  { id: "decoder", section: "3.1, 3.2.3", uses: ["decoderLayer", "head", "target"], draw: stationDecoder },
  { id: "output", section: "3.4", uses: ["target"], draw: stationOutput },
  { id: "beam", section: "6.1", uses: [], draw: stationBeam },
  { id: "why", section: "4", uses: ["target", "source"], draw: stationWhy },
];
