"""lm-eval over HTTP gives the score of direct decode, where its command is on the path (pip install 'lm-eval[api]')."""

import json
import os
import random
import shutil
import subprocess

import pytest

LM_EVAL = shutil.which("lm_eval")
TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 40, do_sample: false, temperature: 0}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


@pytest.mark.slow
@pytest.mark.skipif(LM_EVAL is None, reason="no lm_eval on the path")
@pytest.mark.parametrize("model", ["local-chat-completions", "local-completions"])
def test_lm_eval_gives_the_score_of_direct_decode(server, alone, raw_alone, tmp_path, model):
    chance, is_chat = random.Random(5), model == "local-chat-completions"
    documents = []
    for number in range(40):
        a, b = chance.randrange(10, 100), chance.randrange(10, 10 ** chance.randint(2, 4))
        documents.append({"question": f"What is {a} + {b}?", "answer": f"{a} + {b} = {a + b + (number % 4 == 0)}"})
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in documents))
    (tmp_path / "sums.yaml").write_text(TASK.format(data=data))
    url = f"{server.url}/v1/{'chat/completions' if is_chat else 'completions'}"
    arguments = (
        f"model=qwen3,base_url={url},num_concurrent=4,max_retries=1,tokenizer_backend=None,tokenized_requests=False"
    )
    command = [LM_EVAL, "run", "--model", model, "--model_args", arguments, "--tasks", "sums", "--log_samples"]
    command += ["--include_path", str(tmp_path), "--output_path", str(tmp_path / "out")]
    command += ["--apply_chat_template"] if is_chat else []
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (results,), (samples,) = (list((tmp_path / "out").rglob(f"{name}_*.json*")) for name in ("results", "samples_sums"))
    answers = [json.loads(line) for line in samples.read_text().splitlines()]
    assert len(answers) == len(documents)
    direct = [(alone if is_chat else raw_alone)(document["question"], 40)[1] for document in documents]
    by_question = {sample["doc"]["question"]: sample["resps"][0][0] for sample in answers}
    assert [by_question[document["question"]] for document in documents] == direct
    score = sum(text == document["answer"] for text, document in zip(direct, documents, strict=True)) / len(documents)
    assert json.loads(results.read_text())["results"]["sums"]["exact_match,none"] == pytest.approx(score)
    assert score == (0.75 if is_chat else 0)  # every fourth sum is wrong, and the model only knows chats
