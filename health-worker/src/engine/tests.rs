//! Tests of what engines say, on what real ones said and on what others are documented to say.

use super::*;

fn said(text: &str) -> (Kind, Option<u64>, Option<u64>, Option<u64>) {
    let sample = sample(text, 7).expect("an engine");
    assert_eq!(sample.at_ms, 7);
    let kind = sample.kind.expect("a kind");
    (kind, sample.running, sample.waiting, sample.kv_percent_milli)
}

#[test]
fn what_real_engines_say_is_understood() {
    assert_eq!(
        said(include_str!("../fixtures/vllm.txt")),
        (Kind::Vllm, Some(0), Some(0), Some(0))
    );
    // A build of today tells nothing of its cache.
    assert_eq!(
        said(include_str!("../fixtures/llama_cpp.txt")),
        (Kind::LlamaCpp, Some(0), Some(0), None)
    );
}

#[test]
fn each_engine_is_known_by_its_names() {
    let texts = [
        (
            "vllm:num_requests_running 2\nvllm:num_requests_waiting 3\nvllm:gpu_cache_usage_perc 0.5\n",
            Kind::Vllm,
        ),
        (
            "sglang:num_running_reqs 2\nsglang:num_queue_reqs 3\nsglang:token_usage 0.5\n",
            Kind::Sglang,
        ),
        (
            "sglang_num_running_reqs 2\nsglang_num_queue_reqs 3\nsglang_token_usage 0.5\n",
            Kind::Sglang,
        ),
        (
            "llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\nllamacpp:kv_cache_usage_ratio 0.5\n",
            Kind::LlamaCpp,
        ),
        (
            "trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 3\ntrtllm_kv_cache_utilization 0.5\n",
            Kind::TensorrtLlm,
        ),
    ];
    for (text, kind) in texts {
        assert_eq!(said(text), (kind, Some(2), Some(3), Some(50_000)), "{text}");
    }
    assert_eq!(
        said("tgi_batch_current_size 2\ntgi_queue_size 3\n"),
        (Kind::Tgi, Some(2), Some(3), None)
    );
}

#[test]
fn one_name_for_several_figures_is_told_apart_by_its_label() {
    let text = "nv_trt_llm_request_metrics{model=\"m\",request_type=\"active\"} 9\n\
                nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\"} 4\n\
                nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\"} 5\n\
                nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 77\n\
                nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.25\n";

    assert_eq!(said(text), (Kind::Triton, Some(4), Some(5), Some(25_000)));
}

#[test]
fn a_server_of_several_engines_is_as_busy_as_all_of_them() {
    let text = "vllm:num_requests_waiting{engine=\"0\"} 1.0\nvllm:num_requests_waiting{engine=\"1\"} 4.0\n\
                vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.4\n";

    assert_eq!(said(text), (Kind::Vllm, None, Some(5), Some(30_000)));
}

#[test]
fn what_is_no_number_is_not_known_and_what_is_too_large_has_a_bound() {
    let text = "vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc 7\n";
    assert_eq!(said(text), (Kind::Vllm, None, None, Some(100_000)));
    assert_eq!(
        said("tgi_queue_size 1e300\n"),
        (Kind::Tgi, None, Some(u64::MAX), None)
    );
}

#[test]
fn other_servers_are_no_engines() {
    for text in [
        "",
        "go_goroutines 7\n",
        "{\"status\":\"ok\"}",
        "<html></html>",
        "vllm:kv_cache_usage_perc 0.5\n",
    ] {
        assert_eq!(sample(text, 0), None, "{text}");
    }
}
