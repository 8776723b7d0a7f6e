pub mod answer;
pub mod cache;
pub mod profiles;
pub mod request;
pub mod rules;
pub mod script;
pub mod surfaces;
pub mod window;
