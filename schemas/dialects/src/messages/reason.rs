//! Why an answer ended, in the words of Messages. An answer that ended well and has calls ended to have them made.

use crate::superset::answer::Finish;

/// From the word of an upstream. `calls`: the answer has calls.
pub(super) fn read(word: &str, calls: bool) -> Finish {
    match word {
        "max_tokens" => Finish::Length,
        "model_context_window_exceeded" => Finish::ContextFull,
        "refusal" => Finish::Refused,
        "pause_turn" => Finish::Paused,
        "stop_sequence" if !calls => Finish::StopSequence,
        _ if calls => Finish::ToolCalls,
        _ => Finish::Stop,
    }
}

/// The word for a caller. `calls`: the answer has calls; `refused`: it says no in words.
pub(super) const fn write(finish: Finish, calls: bool, refused: bool) -> &'static str {
    match finish {
        Finish::Length => "max_tokens",
        Finish::ContextFull => "model_context_window_exceeded",
        Finish::Refused => "refusal",
        Finish::Paused => "pause_turn",
        Finish::Stop | Finish::StopSequence | Finish::ToolCalls if calls => "tool_use",
        Finish::Stop | Finish::StopSequence | Finish::ToolCalls if refused => "refusal",
        Finish::StopSequence => "stop_sequence",
        Finish::Stop | Finish::ToolCalls => "end_turn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_that_of_the_whole_turn() {
        let words = [
            ("end_turn", false, Finish::Stop),
            ("end_turn", true, Finish::ToolCalls),
            ("tool_use", true, Finish::ToolCalls),
            ("tool_use", false, Finish::Stop),
            ("stop_sequence", false, Finish::StopSequence),
            ("max_tokens", true, Finish::Length),
            ("model_context_window_exceeded", false, Finish::ContextFull),
            ("refusal", false, Finish::Refused),
            ("pause_turn", false, Finish::Paused),
            ("a_word_of_tomorrow", false, Finish::Stop),
        ];
        for (word, calls, finish) in words {
            assert_eq!(read(word, calls), finish, "{word}");
        }
        assert_eq!(write(Finish::Stop, true, false), "tool_use");
        assert_eq!(write(Finish::ToolCalls, false, false), "end_turn");
        assert_eq!(write(Finish::Stop, false, true), "refusal");
        assert_eq!(write(Finish::Length, true, true), "max_tokens");
    }
}
