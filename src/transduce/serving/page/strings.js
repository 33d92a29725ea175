// The words of the page, English and Korean, in one table.

const TABLE = {
  interfaceLanguage: ["Language of this page", "이 페이지의 언어"],
  apiKey: ["API key", "API 키"],
  shortcuts: ["Keyboard shortcuts", "키보드 단축키"],
  toDark: ["Switch to dark colors", "어두운 화면으로 전환"],
  toLight: ["Switch to light colors", "밝은 화면으로 전환"],
  translator: ["Translator", "번역기"],
  from: ["Translate from", "원문 언어"],
  to: ["Translate to", "번역문 언어"],
  swap: ["Swap languages", "언어 바꾸기"],
  swapImpossible: ["No model translates in the other direction", "반대 방향으로 번역하는 모델이 없습니다"],
  detect: ["Detect language", "언어 감지"],
  detected: ["Detected: {language} ({percent})", "감지된 언어: {language} ({percent})"],
  sourceText: ["Text to translate", "번역할 글"],
  placeholder: ["Type or paste text, or drop a document", "글을 입력하거나 붙여 넣거나 문서를 끌어다 놓으세요"],
  clear: ["Clear the text", "글 지우기"],
  count: ["{count} characters", "{count}자"],
  countOf: ["{count} of {limit} characters", "{limit}자 중 {count}자"],
  tooLong: ["The text is longer than this server takes at once ({limit} characters).", "글이 이 서버의 한도({limit}자)보다 깁니다."],
  tooLongRemedy: ["Shorten it, or drop it here as a document.", "줄이거나 문서 파일로 끌어다 놓으세요."],
  translation: ["Translation", "번역문"],
  translating: ["Translating…", "번역 중…"],
  copy: ["Copy", "복사"],
  copied: ["Copied", "복사했습니다"],
  confidence: ["Confidence {percent}", "확신도 {percent}"],
  high: ["high", "높음"],
  medium: ["medium", "보통"],
  low: ["low", "낮음"],
  glossaryHits: ["Glossary terms in use", "적용된 용어"],
  warnings: ["Warnings", "주의할 점"],
  inSentence: ["Sentence {number}", "문장 {number}"],
  repetition: ["Repeats itself", "같은 말이 되풀이됩니다"],
  copyWarning: ["Copied from the source", "원문이 그대로 남았습니다"],
  length: ["Unusual length", "길이가 이상합니다"],
  truncated: ["Cut off", "끝이 잘렸습니다"],
  glossaryWarning: ["A glossary term is missing", "용어가 빠졌습니다"],
  placeholderWarning: ["A placeholder is missing", "자리표시자가 빠졌습니다"],
  more: ["More about this translation", "이 번역에 대한 자세한 내용"],
  views: ["Views", "보기"],
  sentences: ["Sentences", "문장"],
  attention: ["Attention", "어텐션"],
  glossary: ["Glossary", "용어집"],
  documents: ["Documents", "문서"],
  history: ["History", "기록"],
  welcome: [
    "Point at a word to see what it was translated from. Click it for other translations. A confidence and any warnings appear here for each sentence.",
    "단어를 가리키면 어디에서 번역되었는지 보이고, 누르면 다른 번역이 나옵니다. 문장마다 확신도와 주의할 점이 여기에 표시됩니다.",
  ],
  showAlternatives: ["Alternatives", "다른 번역"],
  showAttention: ["Attention", "어텐션"],
  attentionEmpty: [
    "Write something first: the attention of the model appears here for the sentence under the cursor.",
    "먼저 글을 입력하세요. 커서가 있는 문장의 모델 어텐션이 여기에 나타납니다.",
  ],
  previousSentence: ["Previous sentence", "이전 문장"],
  nextSentence: ["Next sentence", "다음 문장"],
  ownWindow: ["Open in a new tab", "새 탭에서 열기"],
  attentionFrame: ["Attention and beam search of the sentence", "문장의 어텐션과 빔 탐색"],
  useGlossary: ["Glossary in use", "사용할 용어집"],
  noGlossary: ["None: terms of this page only", "없음: 이 페이지의 용어만"],
  glossaryName: ["Name", "이름"],
  newName: ["My glossary", "내 용어집"],
  save: ["Save", "저장"],
  delete: ["Delete", "삭제"],
  confirmDelete: ["Delete the glossary “{name}” from the server?", "용어집 ‘{name}’을(를) 서버에서 삭제할까요?"],
  sourceTerm: ["Term", "용어"],
  targetTerm: ["Translation", "번역"],
  termRow: ["Term {number}", "용어 {number}"],
  targetRow: ["Translation of term {number}", "용어 {number}의 번역"],
  removeTerm: ["Remove term {number}", "용어 {number} 빼기"],
  addTerm: ["Add a term", "용어 추가"],
  unsaved: ["In use, not saved on the server yet.", "적용 중이며, 아직 서버에 저장되지 않았습니다."],
  saved: ["Saved on the server.", "서버에 저장했습니다."],
  termHint: [
    "Terms apply as soon as both sides are filled in. Paste two columns from a spreadsheet to add many.",
    "양쪽을 채우면 바로 적용됩니다. 표 계산 프로그램에서 두 열을 붙여 넣으면 한꺼번에 추가됩니다.",
  ],
  neverTranslate: [
    "Never translate (names and words, separated by commas; kept in this browser)",
    "번역하지 않을 말 (쉼표로 구분, 이 브라우저에만 저장)",
  ],
  dropHere: ["Drop documents here, or click to choose them", "문서를 여기에 끌어다 놓거나 눌러서 고르세요"],
  dropAnywhere: ["Drop to translate", "놓으면 번역합니다"],
  documentTypes: ["Types: {types}", "형식: {types}"],
  wrongType: ["Files of this type are not translated.", "이 형식의 파일은 번역할 수 없습니다."],
  uploading: ["Uploading…", "올리는 중…"],
  queued: ["Waiting…", "기다리는 중…"],
  documentProgress: ["{done} of {total} sentences", "{total}문장 중 {done}문장"],
  done: ["Done", "완료"],
  failed: ["Failed", "실패"],
  download: ["Download", "내려받기"],
  remove: ["Remove {name} from the list", "목록에서 {name} 빼기"],
  keepHistory: ["Keep a history. It stays in this browser.", "기록 남기기. 이 브라우저에만 저장됩니다."],
  clearHistory: ["Clear history", "기록 지우기"],
  historyEmpty: ["No translations yet.", "아직 번역한 글이 없습니다."],
  restore: ["Use again", "다시 쓰기"],
  forget: ["Remove from the history", "기록에서 빼기"],
  alternatives: ["Alternatives", "다른 번역"],
  insteadOf: ["Instead of “{word}”", "‘{word}’ 대신"],
  wholeSentence: ["The whole sentence", "문장 전체"],
  noAlternatives: ["The model has no other suggestion here.", "모델이 다른 번역을 제안하지 않습니다."],
  close: ["Close", "닫기"],
  cancel: ["Cancel", "취소"],
  keyNeeded: ["This server asks for an API key", "이 서버는 API 키가 필요합니다"],
  keyKept: ["It is kept until you close this tab.", "이 탭을 닫을 때까지만 보관됩니다."],
  useKey: ["Use this key", "이 키 쓰기"],
  busy: ["The server is busy. Trying again in {seconds} s.", "서버가 바쁩니다. {seconds}초 뒤에 다시 시도합니다."],
  unreachable: ["The server cannot be reached. Trying again in {seconds} s.", "서버에 연결할 수 없습니다. {seconds}초 뒤에 다시 시도합니다."],
  serverFault: ["The server made a mistake (status {status}).", "서버에 문제가 생겼습니다 (상태 {status})."],
  serverFaultRemedy: ["Try again; if it happens again, tell whoever runs the server.", "다시 시도해 보고, 계속되면 서버 관리자에게 알리세요."],
  tryAgain: ["Try again", "다시 시도"],
  about: ["Transduce {version} · {models}", "Transduce {version} · {models}"],
  keyTranslate: ["Translate now", "바로 번역"],
  keySwap: ["Swap languages", "언어 바꾸기"],
  keyCopy: ["Copy the translation", "번역문 복사"],
  keySource: ["Go to the text", "원문으로 이동"],
  keyOutput: ["Go to the translation", "번역문으로 이동"],
  keyViews: ["Sentences, attention, glossary, documents, history", "문장, 어텐션, 용어집, 문서, 기록"],
  keyWords: ["In the translation: from word to word, from sentence to sentence", "번역문에서 단어와 문장 사이를 이동"],
  keyAlternatives: ["In the translation: alternatives for the word", "번역문에서 단어의 다른 번역 보기"],
  keyEscape: ["Close, or go back to the text", "닫기 또는 원문으로 돌아가기"],
  keyHelp: ["Show these shortcuts (outside text fields)", "단축키 보기 (입력란 밖에서)"],
};

const LANGUAGES = ["en", "ko"];
let current = 0;

export const interfaceLanguage = () => LANGUAGES[current];

export function t(key, values = {}) {
  return TABLE[key][current].replace(/\{(\w+)\}/g, (mark, name) => values[name] ?? mark);
}

export const has = (key) => key in TABLE;
export const percent = (share) => new Intl.NumberFormat(interfaceLanguage(), { style: "percent" }).format(share);
export const number = (value) => new Intl.NumberFormat(interfaceLanguage()).format(value);

export function browserLanguage() {
  const wanted = (navigator.languages ?? [navigator.language]).map((tag) => tag.slice(0, 2));
  return wanted.find((tag) => LANGUAGES.includes(tag)) ?? "en";
}

// Show the page in a language: elements name their strings in data-t… attributes.
export function showLanguage(tag) {
  current = Math.max(0, LANGUAGES.indexOf(tag));
  document.documentElement.lang = interfaceLanguage();
  document.querySelectorAll("[data-t]").forEach((one) => (one.textContent = t(one.dataset.t)));
  document.querySelectorAll("[data-t-placeholder]").forEach((one) => (one.placeholder = t(one.dataset.tPlaceholder)));
  document.querySelectorAll("[data-t-label]").forEach((one) => {
    one.setAttribute("aria-label", t(one.dataset.tLabel));
    if (one.matches("button")) one.title = t(one.dataset.tLabel);
  });
}

// The name of a language in the language of the page; the server's name where the browser knows none.
export function languageName(code, given) {
  try {
    const tag = code.replaceAll("_", "-");
    const name = new Intl.DisplayNames([interfaceLanguage()], { type: "language" }).of(tag);
    if (name && name !== tag) return name;
  } catch {
    // Not a language tag.
  }
  return given ?? code;
}
